"""Requests of docs/protocol.md, their order, and their connections."""

from dataclasses import dataclass
from typing import Any, Final

import msgpack

from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand

# The page's boot id has the length of a real one.
BOOT_ID: Final = "5f0c1e8ab2d94673"
# Name and start of the page's server.
NAME: Final = "ns1"
STARTED: Final = "2026-03-01T12:00:00Z"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and its connection.

    The response to a held request follows the next exchange, which uses another connection.
    """

    name: str
    request: RemotingCommand
    connection: str = "client"
    is_held: bool = False


_IDENTITY: Final = {"clusterName": "c1", "brokerName": "broker-a", "brokerId": "0", "brokerAddr": "10.0.0.21:10911"}
_AGENT: Final = {"agentId": "6b1f"}


def _exchange(
    name: str,
    code: int,
    opaque: int,
    ext: dict[str, str] | None,
    body: bytes = b"",
    *,
    serialize_type: SerializeType = SerializeType.MSGPACK,
    **where: Any,
) -> Exchange:
    request = RemotingCommand(code, opaque, ext_fields=ext, body=body, serialize_type=serialize_type)
    return Exchange(name, request, **where)


def _registration(topics: list[TopicConfig], counter: int) -> bytes:
    return encode_native_body(RegisterBrokerBody(topics, DataVersion(counter, 0, 1_772_352_000_000), {}, None))


def _registered(name: str, opaque: int, seq: int, kind: str, *topics: TopicConfig) -> Exchange:
    ext = {**_IDENTITY, "kind": kind, "registrationSeq": str(seq), **_AGENT}
    body = _registration(list(topics), seq)
    return _exchange(name, RequestCode.REGISTER_BROKER, opaque, ext, body, connection="broker")


def _heartbeat(name: str, opaque: int, ext: dict[str, str], body: bytes = b"") -> Exchange:
    ext = {**_IDENTITY, **_AGENT, **ext}
    return _exchange(name, RequestCode.BROKER_HEARTBEAT, opaque, ext, body, connection="broker")


def _pulled(name: str, opaque: int, since: int, wait_ms: int) -> Exchange:
    request = {"topics": ["orders"], "boot_id": BOOT_ID if since else None, "since": since, "wait_ms": wait_ms}
    return _exchange(name, RequestCode.PULL_ROUTES, opaque, None, msgpack.packb(request), is_held=wait_ms > 0)


def _in_json(name: str, opaque: int, ext: dict[str, str] | None, code: int = 105) -> Exchange:
    return _exchange(name, code, opaque, ext, serialize_type=SerializeType.JSON)


_ORDERS: Final = {"topic": "orders"}
EXCHANGES: Final = (
    _registered("register", 1, 1, "full", TopicConfig("orders", 8, 8)),
    _heartbeat("heartbeat", 2, {}, msgpack.packb({"state": {"queued": 17}})),
    _heartbeat("heartbeat-of-unknown-broker", 3, {"brokerAddr": "10.0.0.29:10911"}),
    _in_json("json-pull", 1, _ORDERS),
    _exchange("binary-pull", 105, 2, _ORDERS, serialize_type=SerializeType.ROCKETMQ),
    _pulled("pull-routes", 3, since=0, wait_ms=0),
    _pulled("pull-routes-wait", 4, since=1, wait_ms=30_000),
    _registered("register-delta", 4, 2, "delta", TopicConfig("orders", 8, 8, perm=4)),
    _in_json("no-topic", 5, {"topic": "nothing"}),
    _in_json("no-field", 6, {}),
    _in_json("no-code", 7, None, code=9999),
)
