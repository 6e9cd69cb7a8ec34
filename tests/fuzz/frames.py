"""One fuzzed frame, made from a number, so that hypothesis can shrink it.

0 is a plain route question. Any other number makes a request of any code in any header, well-formed or hostile, or
bytes that were recorded; four in ten are then broken in one way or another.
"""

import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack

from tests.fuzz.dice import HOSTILE_NUMBERS, HOSTILE_TEXTS, Dice, either, number, some, text
from tests.fuzz.mutations import mutate
from tests.support.spelling import BINARY, JSON, NATIVE, binary_frame, cut, json_frame, native_frame

REGISTER_BROKER = 103
PULL = 105
# by how often they are drawn; those that are not there are unknown to every server
CODES = (
    *(REGISTER_BROKER,) * 12,
    *(PULL,) * 10,
    *(104, 322, 904, 20001, 217, 205, 327) * 2,
    *(100, 101, 102, 106, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 901),
    *(20002, 20003, 20004, 20005, 20006),
    *(0, -1, 905, 10, 1500, 32767, 99999),
)
VERSIONS = (479, 479, 479, 401, 413, 412, 317, 121, 37, 36, 0)
ODD_VERSIONS = (-1, 613, 32767, 32768, 2**31 - 1)
FLAGS = (*(0,) * 16, 2, 2, 1, 3, 4, -1, 2**31 - 1)
OPAQUES = (0, 1, -1, 2**31 - 1, -(2**31), 127, 128, 65536)

# Few, so that frames meet: a broker registered by one is looked up, wiped and unregistered by others.
CLUSTER = text("c0", "c1", "DefaultCluster")
BROKER = text("b0", "b1", "b2", "broker-a")
ADDR = text("127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.2:10911", "127.0.0.3:10911", "[::1]:10911")
TOPIC = text("t0", "t1", "t2", "t3", "%RETRY%g", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_b0", "тема", "a/b")
NAMESPACE = text("ORDER_TOPIC_CONFIG", "ns")
ZONE = text("z0", "z1")
# as texts and as JSON has them
TRUTHS = ("false", "True", "true", True)

# code -> ext fields
_ID = {"brokerName": BROKER, "brokerAddr": ADDR, "clusterName": CLUSTER}
_BROKER = {**_ID, "brokerId": number(0, 0, 0, 1, 1, 2, -1, 2**63 - 1)}
_OF_AGENT = {**_BROKER, "?agentId": either("a1", "a2", ""), "?registrationSeq": number(0, 1, 2)}
_FIELDS: Mapping[int, Mapping[str, Any]] = {
    100: {"namespace": NAMESPACE, "key": TOPIC, "value": text("b0:4", "v")},
    101: {"namespace": NAMESPACE, "key": TOPIC},
    102: {"namespace": NAMESPACE, "key": TOPIC},
    103: {
        **_OF_AGENT,
        "haServerAddr": ADDR,
        # never short: nothing here is about expiry
        "?heartbeatTimeoutMillis": either(*(600_000, 86_400_000) * 6, 0, -1, 10**20, "x"),
        "?enableActingMaster": either(*("true", "false", True) * 6, "TRUE", "x", 1),
        "?__ZONE_NAME": ZONE,
        "?bodyCrc32": number(*(0,) * 9, 1),
        "?kind": text("full", "delta"),
    },
    104: _OF_AGENT,
    105: {
        "topic": TOPIC,
        "?__ZONE_MODE": either(*TRUTHS),
        "?__ZONE_NAME": ZONE,
        "?acceptStandardJsonOnly": either(*TRUTHS[2:]),
    },
    205: {"brokerName": BROKER},
    216: {"topic": TOPIC, "?clusterName": CLUSTER},
    217: {"topic": TOPIC},
    219: {"namespace": NAMESPACE},
    224: {"cluster": CLUSTER},
    322: _BROKER,
    327: {"brokerName": BROKER},
    901: {"clusterName": CLUSTER, "brokerName": BROKER},
    904: _OF_AGENT,
}
_UNKNOWN_FIELD = either("AccessKey", "ns", "lo", "", "\u2028", "x", "x" * 255, "x" * 256)

# bodies, as they are spelt natively
_QUEUES = {"read_queue_nums": number(4, 8, 16), "write_queue_nums": number(4, 8, 16), "perm": number(6, 6, 4, 2, 7)}
_TOPIC_CONFIG = {"topic_name": TOPIC, **_QUEUES, "topic_sys_flag": number(0, 0, 1, 2, 3)}
_VERSION = {"counter": number(0, 1, 2), "state_version": number(0, 0, 0, 1), "timestamp": number(1_700_000_000_000)}
_MAPPING = {
    "topic": TOPIC,
    "bname": BROKER,
    "scope": "global",
    "epoch": number(1),
    "total_queues": number(8),
    "dirty": False,
    "curr_id_map": lambda dice: {
        dice.pick((*(0, 1) * 20, -1, 2**31, 2**63 - 1, "x")): dice.draw(number(0, 1)) for _ in range(2)
    },
}
_REGISTRATION = {
    "topic_configs": some(either(*(_TOPIC_CONFIG,) * 9, {"topic_name": TOPIC, "?perm": number(6)})),
    "data_version": either(*(_VERSION,) * 30, lambda dice: dice.pick(HOSTILE_NUMBERS)),
    "topic_queue_mapping_info_map": either(
        {}, lambda dice: {mapping["topic"]: mapping for mapping in dice.draw(some(_MAPPING))}
    ),
    "filter_server_list": either([], [], None, ["127.0.0.1:7000"]),
    "deleted_topics": either([], [], some(TOPIC)),
}


def _properties(dice: Dice) -> bytes:
    # not notifyMinBrokerIdChanged: the server would dial whatever address a bit flip makes
    keys = ("orderMessageEnable", "supportActingMaster", "enableTopicList", "enableAllTopicList")
    rarer = ("deleteTopicWithBrokerRegistration", "returnOrderTopicConfigToBroker", "listenPort", "kvConfigPath", "x")
    key = dice.pick(keys if dice.below() < 0.7 else rarer)
    return f"{key}{dice.pick(('=', ':', ' = '))}{dice.pick(('true', 'false', 'TRUE', '', 'maybe'))}\n".encode()


_BODIES: Mapping[int, Any] = {
    217: {"queue_datas": some({"broker_name": BROKER, **_QUEUES, "?topic_sys_flag": number(0)}), "broker_datas": []},
    318: _properties,
    322: _VERSION,
    904: {"state": either(None, {"a": 1}, {"disk": 0.5, "ok": True}, {"a": number(1)}, {"a": "x" * 20_000})},
    20001: {
        "topics": some(TOPIC),
        "?boot_id": either(None, "b00t", ""),
        "?since": number(0, 1),
        "?wait_ms": number(0, 1, 20),
    },
    20003: {"since": number(0, 1), "limit": number(10, 1000)},
    20004: {"role": either(None, "broker", "client", "admin", 7)},
    20005: {"cluster": either(None, CLUSTER), "broker_name": either(None, BROKER, ADDR)},
}
# what is no body at all, in the one or the other spelling
HOSTILE_BODIES = (
    *(b"", b"\0", b"{", b"null", b"[]", b"[" * 3000, b'{"a":' * 3000, b'{"topicConfigSerializeWrapper":null}'),
    *(b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t0":null}}}', b"\xef\xbb\xbf{}", b"{/**/}"),
    *(b'{"@type":"java.lang.Class"}', b'{"a":"\xff\xfe"}', b'{"a":"\\ud800"}', b'{"counter":' + b"9" * 4000 + b"}"),
    *(b"\x91" * 3000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc1", b"\x82\xa6topics\xc0", b"\x78\x9c"),
    *(b"\x81\xa5state\x81\xa1a\xcb\x7f\xf8\0\0\0\0\0\0", zlib.compress(b""), zlib.compress(bytes(2_000_000), 9)),
    *(zlib.compress(b"\xff" * 64), zlib.compress(struct.pack(">i", 2**31 - 1) * 4)),
)


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
    version = dice.pick(ODD_VERSIONS if dice.one_in(30) else VERSIONS)
    ext = _ext_fields(code, dice)
    body = _body(code, dice, ext, serialize_type, version)
    flag = dice.pick(FLAGS)
    opaque = dice.pick(OPAQUES) if dice.one_in(10) else dice.upto(2**31 - 2)
    if serialize_type == BINARY:
        return binary_frame(code % 32768, opaque, _texts(ext), body, flag=flag, version=min(version, 32767))
    if serialize_type == NATIVE:
        return native_frame(code, opaque, ext and _tame(ext), body, flag=flag, version=version)
    header: dict[str, Any] = {"code": code, "opaque": opaque, "flag": flag, "version": version}
    header["language"] = dice.pick((*("JAVA", "GO", "PYTHON") * 6, "X", "", 9, 99, None))
    if ext is not None:
        header["extFields"] = _texts(ext) if dice.one_in(2) else ext
    if dice.one_in(12):
        header[dice.pick(("remark", "serializeTypeCurrentRPC", "unknown"))] = dice.pick(HOSTILE_TEXTS)
    if dice.one_in(20):
        header[dice.pick(("code", "opaque", "flag", "version"))] = dice.pick(HOSTILE_NUMBERS)
    if dice.one_in(20):
        del header[dice.pick(("code", "opaque", "flag", "version", "language"))]
    return cut(JSON, _json(dice, header), body)


def _ext_fields(code: int, dice: Dice) -> dict[str, Any] | None:
    fields: dict[str, Any] = dice.draw(_FIELDS.get(code, {}))
    if dice.one_in(6):
        fields[dice.draw(_UNKNOWN_FIELD)] = dice.pick(HOSTILE_TEXTS)
    if fields and dice.one_in(12):
        del fields[dice.pick(tuple(fields))]
    if dice.one_in(500):
        fields.update({f"field{number}": "" for number in range(300)})
    return fields if fields or dice.one_in(2) else None


def _texts(ext: dict[str, Any] | None) -> dict[str, str] | None:
    return ext and {name: value if isinstance(value, str) else json.dumps(value) for name, value in ext.items()}


def _body(code: int, dice: Dice, ext: dict[str, Any] | None, serialize_type: int, version: int) -> bytes:
    if dice.one_in(50):
        return dice.pick(HOSTILE_BODIES)
    if code != REGISTER_BROKER:
        body = dice.draw(_BODIES[code] if code in _BODIES else dice.bytes(dice.upto(8)) if dice.one_in(30) else b"")
        if isinstance(body, bytes):
            return body
        return _packed(body) if serialize_type == NATIVE or code > 20000 else _json(dice, _camel(body))
    compressed = dice.one_in(3)
    if compressed and ext is not None and not dice.one_in(6):
        ext["compressed"] = "true"
    native = serialize_type == NATIVE
    # mostly in the form that header and version announce
    if dice.one_in(20):
        native, compressed, version = dice.one_in(2), dice.one_in(2), dice.pick((36, 400, 479))
    return _registration(dice, native=native, compressed=compressed, version=version)


def _registration(dice: Dice, *, native: bool, compressed: bool, version: int) -> bytes:
    found = dice.draw(_REGISTRATION)
    if native:
        return zlib.compress(_packed(found)) if compressed else _packed(found)
    topics, mappings = found["topic_configs"], list(found["topic_queue_mapping_info_map"].values())
    if compressed:
        return zlib.compress(_lines(dice, found, topics, mappings, with_mappings=version >= 413), 1)
    wrapper = {
        "topicConfigTable": {str(topic.get("topic_name")): _camel(topic) for topic in topics},
        "dataVersion": _camel(found["data_version"]),
        "topicQueueMappingInfoMap": {str(mapping["topic"]): _camel(mapping) for mapping in mappings},
    }
    body = {"topicConfigSerializeWrapper": wrapper, "filterServerList": found["filter_server_list"]}
    return _json(dice, wrapper if version < 37 else body)


def _lines(dice: Dice, found: dict[str, Any], topics: list[Any], mappings: list[Any], *, with_mappings: bool) -> bytes:
    def count(items: list[Any]) -> bytes:
        number = dice.pick((-1, 0, len(items) + 1, 2**31 - 1)) if dice.one_in(25) else len(items)
        return struct.pack(">i", number)

    pieces = [_piece(_json(dice, _camel(found["data_version"]))), count(topics)]
    for topic in topics:
        line = " ".join(str(topic.get(name)) for name in ("topic_name", *_QUEUES)) + " SINGLE_TAG {}"
        pieces.append(_piece(line.encode("utf-8", "surrogatepass")[: dice.pick((None, None, None, 9))]))
    pieces.append(_piece(dice.pick((b"[]", b"null", b'["127.0.0.1:7000"]', b"{}"))))
    if with_mappings != dice.one_in(20):
        pieces += [count(mappings), *(_piece(_json(dice, _camel(mapping))) for mapping in mappings)]
    return b"".join(pieces)[: dice.pick((None,) * 15 + (-1, 40))]


def _piece(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _json(dice: Dice, value: Any) -> bytes:
    """JSON as some peer writes it: bare integer keys and names, single quotes, a byte order mark, blanks."""
    style = dice.upto(19)
    text = json.dumps(value, separators=None if style < 8 else (",", ":"), ensure_ascii=style % 2 == 0)
    if style == 8:
        text = text.replace('"', "'")
    elif style == 9:
        text = re.sub(r'"([a-z]\w*|-?\d+)":', r"\1:", text)
    elif style == 10:
        text = "\ufeff" + text
    elif style == 11:
        text = " " + text.replace(",", " ,\n ") + "\n"
    elif style <= 15:
        text = re.sub(r'"([01])":', r"\1:", text)
    return text.encode("utf-8", "surrogatepass")


def _camel(value: Any) -> Any:
    """The same as Java spells it."""
    if isinstance(value, dict):
        return {re.sub(r"_(\w)", lambda found: found[1].upper(), str(key)): _camel(value[key]) for key in value}
    return [_camel(element) for element in value] if isinstance(value, list) else value


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(_tame(value)))


def _tame(value: Any) -> Any:
    """The same, with integers that msgpack has no room for as text."""
    if isinstance(value, dict):
        return {key: _tame(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_tame(member) for member in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value
