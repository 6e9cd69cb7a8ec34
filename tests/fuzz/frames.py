"""One fuzzed frame, made from a number, so that hypothesis can shrink it.

0 is a plain route question. Any other number makes a request of any code in any header, well-formed or hostile, or
bytes that were recorded; four in ten are then broken in one way or another.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz import bodies
from tests.fuzz.mutations import mutate
from tests.fuzz.values import (
    ADDRS,
    BROKER_IDS,
    BROKERS,
    CLUSTERS,
    HOSTILE_NUMBERS,
    HOSTILE_TEXTS,
    NAMESPACES,
    TOPICS,
    VERSIONS,
    Dice,
)
from tests.support.spelling import BINARY, JSON, NATIVE, binary_frame, cut, json_frame, native_frame

REGISTER_BROKER = 103
PULL = 105
# by how often they are drawn; those that are not there are unknown to every server
CODES = (
    *(REGISTER_BROKER,) * 12,
    *(PULL,) * 10,
    *(104, 322, 904, 20001, 217, 205, 327) * 2,
    *(100, 101, 102, 106, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 901),
    *(20002, 20003, 20004, 20005),
    *(0, -1, 905, 10, 1500, 32767, 99999),
)
FLAGS = (*(0,) * 16, 2, 2, 1, 3, 4, -1, 2**31 - 1)
OPAQUES = (0, 1, -1, 2**31 - 1, -(2**31), 127, 128, 65536)
_BROKER: Mapping[str, Callable[[Dice], Any]] = {
    "brokerName": lambda dice: dice.text(BROKERS),
    "brokerAddr": lambda dice: dice.text(ADDRS),
    "clusterName": lambda dice: dice.text(CLUSTERS),
    "brokerId": lambda dice: dice.number(*BROKER_IDS),
}
_AGENT: Mapping[str, Callable[[Dice], Any]] = {
    "agentId": lambda dice: dice.pick(("a1", "a2", "")),
    "registrationSeq": lambda dice: dice.number(0, 1, 2),
}
_NAMESPACE: Mapping[str, Callable[[Dice], Any]] = {"namespace": lambda dice: dice.text(NAMESPACES)}
_KEY: Mapping[str, Callable[[Dice], Any]] = {**_NAMESPACE, "key": lambda dice: dice.text(TOPICS)}
_TOPIC: Mapping[str, Callable[[Dice], Any]] = {"topic": lambda dice: dice.text(TOPICS)}
# code -> its ext fields; those after them are rare
_FIELDS: Mapping[int, Mapping[str, Callable[[Dice], Any]]] = {
    100: {**_KEY, "value": lambda dice: dice.text(("b0:4", "v"))},
    101: _KEY,
    102: _KEY,
    103: {**_BROKER, "haServerAddr": lambda dice: dice.text(ADDRS)},
    104: _BROKER,
    105: _TOPIC,
    205: {"brokerName": lambda dice: dice.text(BROKERS)},
    216: _TOPIC,
    217: _TOPIC,
    219: _NAMESPACE,
    224: {"cluster": lambda dice: dice.text(CLUSTERS)},
    322: _BROKER,
    327: {"brokerName": lambda dice: dice.text(BROKERS)},
    901: {"clusterName": lambda dice: dice.text(CLUSTERS), "brokerName": lambda dice: dice.text(BROKERS)},
    904: _BROKER,
}
_RARE: Mapping[int, Mapping[str, Callable[[Dice], Any]]] = {
    103: {
        # never short: nothing here is about expiry
        "heartbeatTimeoutMillis": lambda dice: dice.pick((*(600_000, 86_400_000) * 6, 0, -1, 10**20, "x")),
        "enableActingMaster": lambda dice: dice.pick((*("true", "false", True) * 6, "TRUE", "x", 1)),
        "__ZONE_NAME": lambda dice: dice.text(("z0", "z1")),
        "bodyCrc32": lambda dice: dice.number(*(0,) * 9, 1),
        "kind": lambda dice: dice.text(("full", "delta")),
        **_AGENT,
    },
    104: _AGENT,
    105: {
        "__ZONE_MODE": lambda dice: dice.pick(("true", "false", "True", True)),
        "__ZONE_NAME": lambda dice: dice.text(("z0", "z1")),
        "acceptStandardJsonOnly": lambda dice: dice.pick(("true", True)),
    },
    216: {"clusterName": lambda dice: dice.text(CLUSTERS)},
    904: _AGENT,
}


class FrameMaker:
    """Makes frames from numbers; `recorded` are whole frames to begin with besides those that are made up."""

    def __init__(self, recorded: Sequence[bytes]) -> None:
        self._recorded = tuple(recorded) or (json_frame(PULL, 1, {"topic": "t0"}),)

    def make(self, number: int) -> bytes:
        """The bytes of a frame, or of something that was one."""
        if not number:
            return json_frame(PULL, 1, {"topic": "t0"})
        dice = Dice(number)
        frame = self._whole(dice)
        if dice.below() < 0.4:
            return mutate(frame, self._whole(dice), dice)
        return frame

    def _whole(self, dice: Dice) -> bytes:
        return dice.pick(self._recorded) if dice.one_in(8) else request(dice)


def recorded_frames(folder: Path) -> list[bytes]:
    """The requests in recorded scenarios; none where there is no such folder."""
    return [
        bytes.fromhex(step["request"])
        for path in sorted(folder.glob("*.jsonl"))
        for step in map(json.loads, path.read_text().splitlines())
    ]


def request(dice: Dice) -> bytes:
    """A request that is whole, whatever it says."""
    code = dice.pick(CODES)
    serialize_type = dice.pick((JSON, JSON, BINARY, NATIVE, NATIVE))
    version = dice.pick(VERSIONS) if not dice.one_in(30) else dice.pick((-1, 613, 32767, 32768, 2**31 - 1))
    ext = _ext_fields(code, dice)
    body = _body(code, dice, ext, serialize_type, version)
    flag = dice.pick(FLAGS)
    opaque = dice.pick(OPAQUES) if dice.one_in(10) else dice.upto(2**31 - 2)
    if serialize_type == BINARY:
        return binary_frame(code % 32768, opaque, _texts(ext), body, flag=flag, version=min(version, 32767))
    if serialize_type == NATIVE:
        return native_frame(code, opaque, _scalars(ext), body, flag=flag, version=version)
    return _json_request(dice, {"code": code, "opaque": opaque, "flag": flag, "version": version}, ext, body)


def _ext_fields(code: int, dice: Dice) -> dict[str, Any] | None:
    fields = {name: make(dice) for name, make in _FIELDS.get(code, {}).items()}
    for name, make in _RARE.get(code, {}).items():
        if dice.one_in(4):
            fields[name] = make(dice)
    if dice.one_in(6):
        fields[dice.pick(("AccessKey", "ns", "lo", "", "\u2028", "x" * dice.pick((1, 255, 256))))] = dice.pick(
            HOSTILE_TEXTS
        )
    if fields and dice.one_in(12):
        del fields[dice.pick(tuple(fields))]
    if dice.one_in(500):
        fields.update({f"field{number}": "" for number in range(300)})
    return fields if fields or dice.one_in(2) else None


def _body(code: int, dice: Dice, ext: dict[str, Any] | None, serialize_type: int, version: int) -> bytes:
    if dice.one_in(50):
        return dice.pick(bodies.HOSTILE_BODIES)
    if code != REGISTER_BROKER:
        return bodies.other_body(code, dice, serialize_type)
    compressed = dice.one_in(3)
    if compressed and ext is not None and not dice.one_in(6):
        ext["compressed"] = "true"
    return bodies.register_body(dice, native=serialize_type == NATIVE, compressed=compressed, version=version)


def _texts(ext: dict[str, Any] | None) -> dict[str, str] | None:
    return None if ext is None else {name: _text(value) for name, value in ext.items()}


def _scalars(ext: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a native header has room for."""
    if ext is None:
        return None
    return {
        name: value
        if value is None or isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 2**63)
        else _text(value)
        for name, value in ext.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _json_request(dice: Dice, members: dict[str, Any], ext: dict[str, Any] | None, body: bytes) -> bytes:
    header: dict[str, Any] = {**members, "language": dice.pick((*("JAVA", "GO", "PYTHON") * 6, "X", "", 9, 99, None))}
    if ext is not None:
        header["extFields"] = _texts(ext) if dice.one_in(2) else ext
    if dice.one_in(12):
        header[dice.pick(("remark", "serializeTypeCurrentRPC", "unknown"))] = dice.pick(HOSTILE_TEXTS)
    if dice.one_in(20):
        header[dice.pick(("code", "opaque", "flag", "version"))] = dice.pick(HOSTILE_NUMBERS)
    if dice.one_in(20):
        del header[dice.pick(("code", "opaque", "flag", "version", "language"))]
    return cut(JSON, _spelt(dice, header), body)


def _spelt(dice: Dice, header: dict[str, Any]) -> bytes:
    """JSON as some peer writes it."""
    style = dice.upto(19)
    separators = None if style < 8 else (",", ":")
    text = json.dumps(header, separators=separators, ensure_ascii=style % 2 == 0)
    if style == 8:
        text = text.replace('"', "'")
    elif style == 9:
        text = text.replace('"code"', "code").replace('"opaque"', "opaque")
    elif style == 10:
        text = "\ufeff" + text
    elif style == 11:
        text = f" {text}\n"
    return text.encode()
