"""One fuzzed frame made from a number, so that hypothesis can shrink it.

0 is a plain route request. Any other number makes a request of any code in any header, well-formed or hostile, or
recorded bytes; four in ten are then broken.
"""

import json
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgpack

from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.requests import REQUESTS
from tests.fuzz.mutations import Dice, edited, mutate
from tests.support.spelling import BINARY, JSON, NATIVE, binary_frame, cut, json_frame, native_frame

# requests of recorded scenarios, in addition to generated ones
RECORDED: Final = [
    bytes.fromhex(step["request"])
    for path in sorted((Path(__file__).parents[1] / "golden").glob("*.jsonl"))
    for step in map(json.loads, path.read_text().splitlines())
]
PLAIN: Final = json_frame(105, 1, {"topic": "t0"})

HOSTILE_TEXTS = (
    *("", " ", "\0", "null", "true", "NaN", "-1", "0", "1e400", "99999999999999999999", "9" * 5000, "\uff10", "{}"),
    *('{"0":"', '"', "'", "\\", "\\ud800", "\u2028\x7f\x1b[31m", "../../etc/passwd", "%s%n{0}", "a" * 256),
    *("b" * 33_000, "\U0001f98a" * 90, "a\nb=c"),
)
HOSTILE_NUMBERS: tuple[Any, ...] = (
    *(-1, 0, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30),
    *(1.5, True, None, "1", "x", [], {}),
)
# invalid bodies in either encoding
HOSTILE_BODIES = (
    *(b"", b"\0", b"{", b"null", b"[]", b"[" * 3000, b'{"a":' * 3000, b'{"topicConfigSerializeWrapper":null}'),
    *(b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t0":null}}}', b"\xef\xbb\xbf{}", b"{/**/}"),
    *(b'{"@type":"java.lang.Class"}', b'{"a":"\xff\xfe"}', b'{"a":"\\ud800"}', b'{"counter":' + b"9" * 4000 + b"}"),
    *(b"\x91" * 3000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc1", b"\x82\xa6topics\xc0", b"\x78\x9c"),
    *(b"\x81\xa5state\x81\xa1a\xcb\x7f\xf8\0\0\0\0\0\0", zlib.compress(b""), zlib.compress(bytes(2_000_000), 9)),
    *(zlib.compress(b"\xff" * 64), zlib.compress(struct.pack(">i", 2**31 - 1) * 4)),
)

REGISTER_BROKER = 103
_FREQUENT = (*((REGISTER_BROKER,) * 12 + (105,) * 10), *(104, 322, 904, 20001, 217, 205, 327) * 2)
# codes by frequency; the last ones are unknown to every server
CODES = (*_FREQUENT, *sorted(REQUESTS.keys() - _FREQUENT), *(0, -1, 10, 1500, 32767, 99999))
VERSIONS = (479, 479, 479, 401, 413, 412, 317, 121, 37, 36, 0)
ODD_VERSIONS = (-1, 613, 32767, 32768, 2**31 - 1)
FLAGS = (*(0,) * 16, 2, 2, 1, 3, 4, -1, 2**31 - 1)
OPAQUES = (0, 1, -1, 2**31 - 1, -(2**31), 127, 128, 65536)

# A tuple stands for one of its members, a list for up to five values like its members, and a member whose name begins
# with ? is rare. Few names exist, so that frames concern the same brokers.
CLUSTER = ("c0", "c0", "c1", "DefaultCluster")
BROKER = ("b0", "b0", "b0", "b1", "b2", "broker-a")
ADDR = ("127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.2:10911", "127.0.0.3:10911", "[::1]:10911")
TOPIC = ("t0", "t0", "t1", "t2", "t3", "%RETRY%g", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_b0", "тема", "a/b")
ZONE = ("z0", "z1")
TRUTH = ("false", "True", "true", True)

_ID = (0, 0, 0, 1, 1, 2, -1, 2**63 - 1)
_BROKER = {"brokerName": BROKER, "brokerAddr": ADDR, "clusterName": CLUSTER, "brokerId": _ID}
_OF_AGENT = {**_BROKER, "?agentId": ("a1", "a2", ""), "?registrationSeq": (0, 1, 2)}
_KV = {"namespace": ("ORDER_TOPIC_CONFIG", "ns"), "key": TOPIC, "value": ("b0:4", "v")}
_TOPIC = {"topic": TOPIC, "?clusterName": CLUSTER}
# code -> ext fields; `compressed` of a registration is chosen with the body
FIELDS: Mapping[int, Mapping[str, Any]] = {
    **dict.fromkeys((100, 101, 102, 219), _KV),
    **dict.fromkeys((205, 322, 327, 901), _BROKER),
    **dict.fromkeys((104, 904), _OF_AGENT),
    **dict.fromkeys((216, 217), _TOPIC),
    103: {
        **_OF_AGENT,
        "haServerAddr": ADDR,
        # never short, because fuzzing does not test expiry
        "?heartbeatTimeoutMillis": (*(600_000, 86_400_000) * 6, 0, -1, 10**20, "x"),
        "?enableActingMaster": (*("true", "false", True) * 6, "TRUE", "x", 1),
        "?__ZONE_NAME": ZONE,
        "?bodyCrc32": (*(0,) * 9, 1),
        "?kind": ("full", "delta"),
    },
    105: {"topic": TOPIC, "?__ZONE_MODE": TRUTH, "?__ZONE_NAME": ZONE, "?acceptStandardJsonOnly": TRUTH[2:]},
    224: {"cluster": CLUSTER},
}
_UNKNOWN_FIELD = ("AccessKey", "ns", "lo", "", "\u2028", "x", "x" * 255, "x" * 256)

# native bodies
_QUEUES = {"read_queue_nums": (4, 8, 16), "write_queue_nums": (4, 8, 16), "perm": (6, 6, 4, 2, 7)}
_TOPIC_CONFIG = {"topic_name": TOPIC, **_QUEUES, "topic_sys_flag": (0, 0, 1, 2, 3)}
_VERSION = {"counter": (0, 1, 2), "state_version": (0, 0, 0, 1), "timestamp": 1_700_000_000_000}
_MAPPING = {"topic": TOPIC, "bname": BROKER, "scope": "global", "epoch": 1, "total_queues": 8, "dirty": False}
_MAPPING |= {"curr_id_map": (*({0: (0, 1), 1: 1},) * 20, {-1: 0}, {2**31: 0}, {2**63 - 1: 0}, {"x": 0})}
_REGISTRATION = {
    "topic_configs": [_TOPIC_CONFIG],
    "data_version": _VERSION,
    "topic_queue_mapping_info_map": ([], [], [_MAPPING]),
    "filter_server_list": ([], [], None, ["127.0.0.1:7000"]),
    "deleted_topics": ([], [], [TOPIC]),
}
# Without notifyMinBrokerIdChanged: the server would connect to any address that a bit flip makes.
_SETTINGS = (
    *("orderMessageEnable", "supportActingMaster", "enableTopicList", "enableAllTopicList", "listenPort", "x"),
    *("deleteTopicWithBrokerRegistration", "kvConfigPath"),
)
_PROPERTIES = [
    key + is_ + value for key in _SETTINGS for is_ in "=:" for value in ("true\n", "false\n", " TRUE", "maybe")
]
_BODIES: Mapping[int, Any] = {
    217: {"queue_datas": [{"broker_name": BROKER, **_QUEUES, "?topic_sys_flag": 0}], "broker_datas": []},
    318: tuple(map(str.encode, _PROPERTIES)),
    322: _VERSION,
    904: {"state": (None, {"a": 1}, {"disk": 0.5, "ok": True}, {"a": "x" * 20_000})},
    20001: {"topics": [TOPIC], "?boot_id": (None, "b00t", ""), "?since": (0, 1), "?wait_ms": (0, 1, 20)},
    20003: {"since": (0, 1), "limit": (10, 1000)},
    20004: {"role": (None, "broker", "client", "admin", 7)},
    20005: {"cluster": (None, *CLUSTER), "broker_name": (None, *BROKER, *ADDR)},
}


def make(number: int) -> bytes:
    """The bytes of a frame, possibly broken."""
    if not number:
        return PLAIN
    dice = Dice(number)
    frame = _whole(dice)
    return mutate(frame, _whole(dice), dice) if dice.below() < 0.4 else frame


def _whole(dice: Dice) -> bytes:
    return dice.pick(RECORDED) if dice.one_in(8) else request(dice)


def _draw(dice: Dice, what: Any) -> Any:
    """A value of this kind, rarely a hostile one."""
    if isinstance(what, tuple):
        return _draw(dice, dice.pick(what))
    if isinstance(what, list):
        return [_draw(dice, each) for each in what for _ in range(dice.upto(5))]
    if isinstance(what, dict):
        kept = [name for name in what if str(name)[:1] != "?" or dice.one_in(4)]
        return {name.removeprefix("?") if isinstance(name, str) else name: _draw(dice, what[name]) for name in kept}
    if isinstance(what, str | int) and dice.one_in(60):
        return dice.pick(HOSTILE_TEXTS if isinstance(what, str) else HOSTILE_NUMBERS)
    return what


def request(dice: Dice) -> bytes:
    """A whole request with any content."""
    code = dice.pick(CODES)
    serialize_type = dice.pick((JSON, JSON, BINARY, NATIVE, NATIVE))
    version = dice.pick(ODD_VERSIONS if dice.one_in(30) else VERSIONS)
    ext: dict[str, Any] | None = _draw(dice, FIELDS.get(code, {}))
    if ext and dice.one_in(12):
        del ext[dice.pick(tuple(ext))]
    if dice.one_in(6):
        ext = {**(ext or {}), dice.pick(_UNKNOWN_FIELD): dice.pick(HOSTILE_TEXTS)}
    if dice.one_in(500):
        ext = {f"field{number}": "" for number in range(300)}
    ext = ext or dice.pick((None, {}))
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


def _body(code: int, dice: Dice, ext: dict[str, Any] | None, serialize_type: int, version: int) -> bytes:
    if dice.one_in(50):
        return dice.pick(HOSTILE_BODIES)
    if code != REGISTER_BROKER:
        body = _draw(dice, _BODIES.get(code, dice.bytes(dice.upto(8)) if dice.one_in(30) else b""))
        if isinstance(body, bytes):
            return body
        return _packed(body) if serialize_type == NATIVE or code > 20000 else _json(dice, _camel(body))
    native, compressed = serialize_type == NATIVE, dice.one_in(3)
    if compressed and ext is not None and not dice.one_in(6):
        ext["compressed"] = "true"
    # mostly in the form announced by header and version
    if dice.one_in(20):
        native, compressed, version = dice.one_in(2), dice.one_in(2), dice.pick((36, 400, 479))
    return _registration(dice, native=native, compressed=compressed, version=version)


def _registration(dice: Dice, *, native: bool, compressed: bool, version: int) -> bytes:
    found = _draw(dice, _REGISTRATION)
    topics, mappings = found["topic_configs"], {one["topic"]: one for one in found["topic_queue_mapping_info_map"]}
    if native:
        body = _packed({**found, "topic_queue_mapping_info_map": mappings})
        return zlib.compress(body) if compressed else body
    if compressed:
        configs = [TopicConfig(**_tame(topic)) for topic in topics]
        infos = {topic: TopicQueueMappingInfo(**_tame(mapping)) for topic, mapping in mappings.items()}
        data_version = DataVersion(**_tame(found["data_version"]))
        body = zlib.decompress(write_compressed(configs, data_version, infos, found["filter_server_list"] or ()))
        # the end before version 413; and false lengths
        body = body[:-4] if version < 413 and not infos else body
        return zlib.compress(edited(body, b"", dice) if dice.one_in(8) else body, 1)
    wrapper = {
        "topicConfigTable": {topic["topic_name"]: _camel(topic) for topic in topics},
        "dataVersion": _camel(found["data_version"]),
        "topicQueueMappingInfoMap": {topic: _camel(mapping) for topic, mapping in mappings.items()},
    }
    whole = {"topicConfigSerializeWrapper": wrapper, "filterServerList": found["filter_server_list"]}
    return _json(dice, wrapper if version < 37 else whole)


def _texts(ext: dict[str, Any] | None) -> dict[str, str] | None:
    return ext and {name: value if isinstance(value, str) else json.dumps(value) for name, value in ext.items()}


def _json(dice: Dice, value: Any) -> bytes:
    """JSON in a peer's variant: bare integer keys and names, single quotes, a byte order mark, blanks."""
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
    return text.encode()


def _camel(value: Any) -> Any:
    """The same with Java's names."""
    if isinstance(value, dict):
        return {re.sub(r"_(\w)", lambda found: found[1].upper(), str(key)): _camel(value[key]) for key in value}
    return [_camel(element) for element in value] if isinstance(value, list) else value


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(_tame(value)))


def _tame(value: Any) -> Any:
    """The same with text in place of integers beyond msgpack's range."""
    if isinstance(value, dict):
        return {key: _tame(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_tame(member) for member in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value
