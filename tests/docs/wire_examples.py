"""Requests and responses of docs/protocol.md, their order, and their connections."""

import json
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import FLAG_RESPONSE, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand

# the page's boot id, as long as a real one
BOOT_ID: Final = "5f0c1e8ab2d94673"
# the name and the start of the page's server
NAME: Final = "ns1"
STARTED: Final = "2026-03-01T12:00:00Z"
_JSON, _BINARY, _NATIVE = SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.MSGPACK


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, its expected response, and its connection.

    The response to a held request follows the next exchange, which uses another connection.
    """

    name: str
    request: RemotingCommand
    response: RemotingCommand
    # the decoded body of the response; None without one
    body: Any = None
    connection: str = "client"
    is_held: bool = False


_IDENTITY: Final = {"clusterName": "c1", "brokerName": "broker-a", "brokerId": "0", "brokerAddr": "10.0.0.21:10911"}
_AGENT: Final = {"agentId": "6b1f"}
_BOOT: Final = {"boot_id": BOOT_ID}


def _exchange(
    name: str,
    code: int,
    opaque: int,
    ext: dict[str, str] | None,
    body: bytes = b"",
    *,
    serialize_type: SerializeType = _NATIVE,
    response_code: int = 0,
    remark: str | None = None,
    response_body: Any = None,
    **where: Any,
) -> Exchange:
    # a binary request gets a JSON response
    ours, type_ = (_BOOT, _NATIVE) if serialize_type == _NATIVE else (None, _JSON)
    return Exchange(
        name,
        RemotingCommand(code, opaque, ext_fields=ext, body=body, serialize_type=serialize_type),
        RemotingCommand(response_code, opaque, FLAG_RESPONSE, remark=remark, ext_fields=ours, serialize_type=type_),
        response_body,
        **where,
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


def _registered(name: str, opaque: int, seq: int, kind: str, *topics: TopicConfig) -> Exchange:
    ext = {**_IDENTITY, "kind": kind, "registrationSeq": str(seq), **_AGENT}
    body = _registration(list(topics), seq)
    return _exchange(name, RequestCode.REGISTER_BROKER, opaque, ext, body, response_body={}, connection="broker")


def _heartbeat(name: str, opaque: int, ext: dict[str, str], body: bytes = b"", **response: Any) -> Exchange:
    ext = {**_IDENTITY, **_AGENT, **ext}
    return _exchange(name, RequestCode.BROKER_HEARTBEAT, opaque, ext, body, connection="broker", **response)


def _pulled(name: str, opaque: int, since: int, wait_ms: int, perm: int = 6) -> Exchange:
    request = {"topics": ["orders"], "boot_id": BOOT_ID if since else None, "since": since, "wait_ms": wait_ms}
    routes = {
        "boot_id": BOOT_ID,
        "revision": since + 1,
        "ready": True,
        "full": not since,
        "routes": {"orders": _route(perm)},
    }
    body = msgpack.packb(request)
    return _exchange(name, RequestCode.PULL_ROUTES, opaque, None, body, response_body=routes, is_held=wait_ms > 0)


def _json_request(name: str, opaque: int, ext: dict[str, str] | None, code: int = 105, **response: Any) -> Exchange:
    return _exchange(name, code, opaque, ext, **{"serialize_type": _JSON, **response})


_ORDERS: Final = {"topic": "orders"}
_REASON: Final = (
    f"NameServer {NAME}, up since {STARTED}, has 1 broker.\n"
    "No broker has registered the topic, and a first message would not create it: "
    "no broker has autoCreateTopicEnable (TBW102 is missing)."
)
_NO_TOPIC: Final = f"No topic route info in name server for the topic: nothing\n{_FAQ}\n{_REASON}"
_NO_BROKER: Final = "broker broker-a at 10.0.0.29:10911 is not registered"
EXCHANGES: Final = (
    _registered("register", 1, 1, "full", TopicConfig("orders", 8, 8)),
    _heartbeat("heartbeat", 2, {}, msgpack.packb({"state": {"queued": 17}})),
    _heartbeat(
        "heartbeat-of-unknown-broker", 3, {"brokerAddr": "10.0.0.29:10911"}, response_code=22, remark=_NO_BROKER
    ),
    _json_request("json-pull", 1, _ORDERS, response_body=_JSON_ROUTE),
    _json_request("binary-pull", 2, _ORDERS, serialize_type=_BINARY, response_body=_JSON_ROUTE),
    _pulled("pull-routes", 3, since=0, wait_ms=0),
    _pulled("pull-routes-wait", 4, since=1, wait_ms=30_000, perm=4),
    _registered("register-delta", 4, 2, "delta", TopicConfig("orders", 8, 8, perm=4)),
    _json_request("no-topic", 5, {"topic": "nothing"}, response_code=17, remark=_NO_TOPIC),
    _json_request("no-field", 6, {}, response_code=1, remark="field topic is missing"),
    _json_request("no-code", 7, None, code=9999, response_code=3, remark=" request type 9999 not supported"),
)


def body_of(command: RemotingCommand) -> Any:
    """A body as plain values; None without one."""
    if not command.body:
        return None
    if command.is_native:
        return msgpack.unpackb(command.body, strict_map_key=False)
    return json.loads(command.body)
