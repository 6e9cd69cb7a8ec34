"""Questions and answers in docs/protocol.md, their order, and their connections."""

import json
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import FLAG_RESPONSE, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand

# what stands on the page in the place of a run's own boot id, which is as long
BOOT_ID: Final = "5f0c1e8ab2d94673"
_JSON, _BINARY, _NATIVE = SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.MSGPACK


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, what its answer says, and the connection it goes over.

    One that is held is answered when the next exchange has been made, over another connection.
    """

    name: str
    question: RemotingCommand
    answer: RemotingCommand
    # of the answer's body, as plain values; None: it has none
    body: Any = None
    connection: str = "client"
    is_held: bool = False


_IDENTITY: Final = {"clusterName": "c1", "brokerName": "broker-a", "brokerId": "0", "brokerAddr": "10.0.0.21:10911"}
_AGENT: Final = {"agentId": "6b1f"}
_BOOT: Final = {"boot_id": BOOT_ID}


def _ask(
    code: int, opaque: int, ext: dict[str, str] | None, body: bytes = b"", serialize_type: SerializeType = _JSON
) -> RemotingCommand:
    return RemotingCommand(code=code, opaque=opaque, ext_fields=ext, body=body, serialize_type=serialize_type)


def _answer(
    opaque: int,
    code: int = 0,
    remark: str | None = None,
    ext: dict[str, str] | None = None,
    serialize_type: SerializeType = _JSON,
) -> RemotingCommand:
    return RemotingCommand(
        code=code, opaque=opaque, flag=FLAG_RESPONSE, remark=remark, ext_fields=ext, serialize_type=serialize_type
    )


def _registration(topics: list[TopicConfig], counter: int) -> bytes:
    return encode_native_body(RegisterBrokerBody(topics, DataVersion(counter, 0, 1_772_352_000_000), {}, None))


def _route(perm: int = 6) -> dict[str, Any]:
    return {
        "broker_datas": [
            {"cluster": "c1", "broker_name": "broker-a", "broker_addrs": {0: "10.0.0.21:10911"}}
        ],
        "queue_datas": [
            {"broker_name": "broker-a", "read_queue_nums": 8, "write_queue_nums": 8, "perm": perm, "topic_sys_flag": 0}
        ],
    }  # fmt: skip


_JSON_ROUTE: Final = {
    "brokerDatas": [
        {
            "brokerAddrs": {"0": "10.0.0.21:10911"},
            "brokerName": "broker-a",
            "cluster": "c1",
            "enableActingMaster": False,
        }
    ],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}
_FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def _pull(opaque: int, since: int, wait_ms: int) -> RemotingCommand:
    asked = {"topics": ["orders"], "boot_id": BOOT_ID if since else None, "since": since, "wait_ms": wait_ms}
    return _ask(RequestCode.PULL_ROUTES, opaque, None, msgpack.packb(asked), _NATIVE)


EXCHANGES: Final = (
    Exchange(
        "register",
        _ask(
            RequestCode.REGISTER_BROKER,
            1,
            {**_IDENTITY, "kind": "full", "registrationSeq": "1", **_AGENT},
            _registration([TopicConfig("orders", 8, 8), TopicConfig("bills", 4, 4)], 1),
            _NATIVE,
        ),
        _answer(1, ext=_BOOT, serialize_type=_NATIVE),
        {},
        connection="broker",
    ),
    Exchange(
        "heartbeat",
        _ask(
            RequestCode.BROKER_HEARTBEAT, 2, {**_IDENTITY, **_AGENT}, msgpack.packb({"state": {"queued": 17}}), _NATIVE
        ),
        _answer(2, ext=_BOOT, serialize_type=_NATIVE),
        connection="broker",
    ),
    Exchange(
        "heartbeat-of-nobody",
        _ask(RequestCode.BROKER_HEARTBEAT, 3, {**_IDENTITY, "brokerAddr": "10.0.0.29:10911", **_AGENT}, b"", _NATIVE),
        _answer(3, 22, "broker broker-a at 10.0.0.29:10911 is not registered", _BOOT, _NATIVE),
        connection="broker",
    ),
    Exchange(
        "json-pull",
        _ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, {"topic": "orders"}),
        _answer(1),
        _JSON_ROUTE,
    ),
    Exchange(
        "binary-pull",
        _ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, 2, {"topic": "orders"}, b"", _BINARY),
        _answer(2),
        _JSON_ROUTE,
    ),
    Exchange(
        "pull-routes",
        _pull(3, 0, 0),
        _answer(3, ext=_BOOT, serialize_type=_NATIVE),
        {"boot_id": BOOT_ID, "revision": 1, "ready": True, "full": True, "routes": {"orders": _route()}},
    ),
    Exchange(
        "pull-routes-wait",
        _pull(4, 1, 30_000),
        _answer(4, ext=_BOOT, serialize_type=_NATIVE),
        {"boot_id": BOOT_ID, "revision": 2, "ready": True, "full": False, "routes": {"orders": _route(perm=4)}},
        is_held=True,
    ),
    Exchange(
        "register-delta",
        _ask(
            RequestCode.REGISTER_BROKER,
            4,
            {**_IDENTITY, "kind": "delta", "registrationSeq": "2", **_AGENT},
            _registration([TopicConfig("orders", 8, 8, perm=4)], 2),
            _NATIVE,
        ),
        _answer(4, ext=_BOOT, serialize_type=_NATIVE),
        {},
        connection="broker",
    ),
    Exchange(
        "no-topic",
        _ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, 5, {"topic": "nothing"}),
        _answer(5, 17, f"No topic route info in name server for the topic: nothing\n{_FAQ}"),
    ),
    Exchange(
        "no-field",
        _ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, 6, {}),
        _answer(6, 1, "field topic is missing"),
    ),
    Exchange(
        "no-code",
        _ask(9999, 7, None),
        _answer(7, 3, " request type 9999 not supported"),
    ),
)


def body_of(command: RemotingCommand) -> Any:
    """A body as plain values; None when there is none."""
    if not command.body:
        return None
    if command.is_native:
        return msgpack.unpackb(command.body, strict_map_key=False)
    return json.loads(command.body)
