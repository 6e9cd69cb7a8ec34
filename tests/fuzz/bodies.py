"""Bodies of fuzzed requests, in every form."""

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgpack

from tests.fuzz.values import ADDRS, BROKERS, CLUSTERS, HOSTILE_NUMBERS, HOSTILE_TEXTS, TOPICS, Dice
from tests.support.spelling import NATIVE

TIMESTAMP = 1_700_000_000_000
MAP_KEYS = (0, 0, 1, -1, 2**31, 2**63 - 1, "x")
# what is no body at all, in the one or the other spelling
HOSTILE_BODIES = (
    b"",
    b"\0",
    b"{",
    b"null",
    b"[]",
    b"[" * 3000,
    b'{"a":' * 3000,
    b'{"topicConfigSerializeWrapper":null}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t0":null}}}',
    b"\xef\xbb\xbf{}",
    b"{/**/}",
    b'{"@type":"java.lang.Class"}',
    b'{"a":"\xff\xfe"}',
    b'{"a":"\\ud800"}',
    b'{"counter":' + b"9" * 4000 + b"}",
    b"\x91" * 3000,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc1",
    b"\x82\xa6topics\xc0",
    b"\x81\xa5state\x81\xa1a\xcb\x7f\xf8\0\0\0\0\0\0",
    b"\x78\x9c",
    zlib.compress(b""),
    zlib.compress(bytes(2_000_000), 9),
    zlib.compress(b"\xff" * 64),
    zlib.compress(struct.pack(">i", 2**31 - 1) * 4),
)


def register_body(dice: Dice, *, native: bool, compressed: bool, version: int) -> bytes:
    """A REGISTER_BROKER body, mostly in the form that header and version announce."""
    if dice.one_in(20):
        native, compressed, version = dice.one_in(2), dice.one_in(2), dice.pick((36, 400, 479))
    if native:
        packed: bytes = _packed(_native_registration(dice))
        return zlib.compress(packed) if compressed else packed
    if compressed:
        return zlib.compress(_lines(dice, with_mappings=version >= 413), 1)
    wrapper = {
        "topicConfigTable": {name: _topic(dice, name) for name in _topics(dice)},
        "dataVersion": _data_version(dice),
        **dice.pick(({}, {"topicQueueMappingInfoMap": _mappings(dice)})),
    }
    if version < 37:
        return _json(dice, wrapper)
    return _json(
        dice,
        {"topicConfigSerializeWrapper": wrapper, "filterServerList": dice.pick(([], [], None, ["127.0.0.1:7000"]))},
    )


def other_body(code: int, dice: Dice, serialize_type: int) -> bytes:
    """The body of any other request; most have none."""
    make = _BODIES.get(code)
    return make(dice, serialize_type) if make else dice.bytes(dice.upto(8)) if dice.one_in(30) else b""


def _topics(dice: Dice) -> list[str]:
    return [dice.text(TOPICS) for _ in range(dice.upto(5))]


def _topic(dice: Dice, name: str) -> dict[str, Any]:
    topic: dict[str, Any] = {
        "topicName": name if not dice.one_in(40) else dice.pick(HOSTILE_TEXTS),
        "readQueueNums": dice.number(4, 8, 16),
        "writeQueueNums": dice.number(4, 8, 16),
        "perm": dice.number(6, 6, 4, 2, 7),
        "topicSysFlag": dice.number(0, 0, 1, 2, 3),
    }
    if dice.one_in(10):
        del topic[dice.pick(tuple(topic))]
    return topic


def _data_version(dice: Dice) -> Any:
    if dice.one_in(30):
        return dice.pick(HOSTILE_NUMBERS)
    return {
        "counter": dice.number(0, 1, 2),
        "stateVersion": dice.number(0, 0, 0, 1),
        "timestamp": dice.number(TIMESTAMP),
    }


def _mappings(dice: Dice) -> dict[str, Any]:
    return {
        topic: {
            "topic": topic,
            "bname": dice.text(BROKERS),
            "scope": "global",
            "epoch": dice.number(1),
            "totalQueues": dice.number(8),
            "dirty": False,
            "currIdMap": {str(dice.number(0, 1)): dice.number(0, 1), "1": dice.number(1)},
        }
        for topic in _topics(dice)
    }


def _json(dice: Dice, value: Any) -> bytes:
    """JSON, often as fastjson writes or accepts it: bare integer keys, single quotes, a byte order mark, blanks."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=dice.one_in(2))
    style = dice.upto(9)
    if style == 0:
        text = text.replace('"', "'")
    elif style == 1:
        text = "\ufeff" + text
    elif style == 2:
        text = text.replace(",", " ,\n ")
    elif style <= 5:
        for key in ("0", "1"):
            text = text.replace(f'"{key}":', f"{key}:")
    return text.encode("utf-8", "surrogatepass")


def _lines(dice: Dice, *, with_mappings: bool) -> bytes:
    names = _topics(dice)
    pieces = [_piece(_json(dice, _data_version(dice))), struct.pack(">i", _count(dice, len(names)))]
    for name in names:
        numbers = " ".join(str(dice.number(4, 6, 8)) for _ in range(3))
        pieces.append(_piece(f"{name} {numbers} SINGLE_TAG {{}}".encode()[: dice.pick((None, None, None, 9))]))
    pieces.append(_piece(dice.pick((b"[]", b"null", b'["127.0.0.1:7000"]', b"{}"))))
    if with_mappings != dice.one_in(20):
        mappings = list(_mappings(dice).values())
        pieces.append(struct.pack(">i", _count(dice, len(mappings))))
        pieces += (_piece(_json(dice, mapping)) for mapping in mappings)
    return b"".join(pieces)[: dice.pick((None,) * 15 + (-1, 40))]


def _piece(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _count(dice: Dice, count: int) -> int:
    return dice.pick((-1, 0, count + 1, 2**31 - 1)) if dice.one_in(25) else count


def _native_registration(dice: Dice) -> dict[str, Any]:
    names = _topics(dice)
    return {
        "topic_configs": [
            {
                "topic_name": name,
                "read_queue_nums": dice.number(4, 8),
                "write_queue_nums": dice.number(4, 8),
                "perm": dice.number(6, 4),
                "topic_sys_flag": dice.number(0, 1),
            }
            for name in names
        ],
        "data_version": dice.pick((None, {"counter": dice.number(1), "state_version": 0, "timestamp": TIMESTAMP})),
        "topic_queue_mapping_info_map": {
            name: {"topic": name, "bname": dice.text(BROKERS), "curr_id_map": {dice.pick(MAP_KEYS): dice.number(0, 1)}}
            for name in names[: dice.upto(1)]
        },
        "filter_server_list": dice.pick((None, [], ["127.0.0.1:7000"])),
        "deleted_topics": _topics(dice) if dice.one_in(3) else [],
    }


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(_tame(value)))


def _tame(value: Any) -> Any:
    """The same, with integers that msgpack has no room for as text."""
    if isinstance(value, dict):
        return {key: _tame(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_tame(member) for member in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _route(dice: Dice, serialize_type: int) -> bytes:
    names = [dice.text(BROKERS) for _ in range(dice.upto(3))]
    if serialize_type == NATIVE:
        rows = [
            {"broker_name": name, "read_queue_nums": dice.number(4), "write_queue_nums": 4, "perm": 6} for name in names
        ]
        return _packed({"queue_datas": rows, "broker_datas": []})
    return _json(
        dice,
        {
            "brokerDatas": [],
            "queueDatas": [
                {
                    "brokerName": name,
                    "readQueueNums": dice.number(4),
                    "writeQueueNums": dice.number(4),
                    "perm": dice.number(6),
                    "topicSysFlag": dice.number(0),
                }
                for name in names
            ],
        },
    )


def _data_version_body(dice: Dice, serialize_type: int) -> bytes:
    if serialize_type == NATIVE:
        return _packed({"counter": dice.number(1), "state_version": dice.number(0), "timestamp": TIMESTAMP})
    return _json(dice, _data_version(dice))


def _properties(dice: Dice, serialize_type: int) -> bytes:
    # not notifyMinBrokerIdChanged: the server would dial whatever address a bit flip makes
    keys = ("orderMessageEnable", "supportActingMaster", "enableTopicList", "enableAllTopicList")
    rarer = ("deleteTopicWithBrokerRegistration", "returnOrderTopicConfigToBroker", "listenPort", "kvConfigPath", "x")
    key = dice.pick(keys if dice.below() < 0.7 else rarer)
    return f"{key}{dice.pick(('=', ':', ' = '))}{dice.pick(('true', 'false', 'TRUE', '', 'maybe'))}\n".encode()


def _state(dice: Dice, serialize_type: int) -> bytes:
    if serialize_type != NATIVE:
        return b""
    return _packed(
        {"state": dice.pick((None, {"a": 1}, {"disk": 0.5, "ok": True}, {"a": dice.number(1)}, {"a": "x" * 20_000}))}
    )


def _pull(dice: Dice, serialize_type: int) -> bytes:
    asked: dict[str, Any] = {"topics": _topics(dice)}
    if dice.one_in(2):
        asked.update(boot_id=dice.pick((None, "b00t", "")), since=dice.number(0, 1), wait_ms=dice.number(0, 1, 20))
    return _packed(asked)


def _events(dice: Dice, serialize_type: int) -> bytes:
    return _packed({"since": dice.number(0, 1), "limit": dice.number(10, 1000)})


def _connections(dice: Dice, serialize_type: int) -> bytes:
    return _packed({"role": dice.pick((None, "broker", "client", "admin", 7))})


def _brokers(dice: Dice, serialize_type: int) -> bytes:
    return _packed({"cluster": dice.pick((None, *CLUSTERS)), "broker_name": dice.pick((None, *BROKERS, *ADDRS))})


_BODIES: dict[int, Callable[[Dice, int], bytes]] = {
    217: _route,
    318: _properties,
    322: _data_version_body,
    904: _state,
    20001: _pull,
    20003: _events,
    20004: _connections,
    20005: _brokers,
}
