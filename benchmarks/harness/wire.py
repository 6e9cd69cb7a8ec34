"""Requests and registrations as bytes, and a blocking connection that sends them to a server."""

import socket
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import msgspec

from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import Server
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import CURRENT_VERSION, RequestCode, ResponseCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import Frame, FrameReader, encode_frame
from namesrv_remoting.headers import RegisterBrokerRequestHeader
from namesrv_remoting.serializers import decode_frame, encode_command

_PATIENCE_SECONDS: Final = 30
_WATCH_MS: Final = 60_000
_READ_AT_ONCE: Final = 1 << 20

# load.c overwrites this opaque; it and all larger ones have ten digits in JSON and four bytes in msgpack.
_FIRST_OPAQUE: Final = 1_000_000_000

# Topics of the reference figures. Each response has 1,871 bytes; a changed registration has another number of queues,
# also of one digit, so that the size stays.
PULLED_TOPICS: Final = 1_000
PULLED_BODY_BYTES: Final = 1_871
TOPIC_NAME: Final = "TopicTest%d"
_GROUPS: Final = 8
_QUEUES: Final = 8

# The last members of a Java broker's topicConfigSerializeWrapper, which rocketmq-rust requires.
_MAPPING: Final = (
    b',"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicQueueMappingDetailMap":{}}}'
)


class Wire:
    """A blocking connection to a server."""

    def __init__(self, server: Server, patience_seconds: float = _PATIENCE_SECONDS, *, source: str = "") -> None:
        """Connect, from the address `source` if it is given. Raises OSError."""
        self._socket = socket.create_connection(("127.0.0.1", server.port), patience_seconds, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(self, frame: bytes) -> RemotingCommand:
        """Send an encoded request and return its response, which may have any code. Raises BenchError."""
        self.send(frame)
        return self.receive()

    def send(self, frames: bytes) -> None:
        """Send without waiting for a response. Raises BenchError."""
        try:
            self._socket.sendall(frames)
        except OSError as error:
            raise BenchError(f"cannot send {len(frames)} bytes: {error}") from error

    def receive(self) -> RemotingCommand:
        """Return the next response; no other request may be in flight. Raises BenchError."""
        return next(self.responses(1))

    def responses(self, count: int) -> Iterator[RemotingCommand]:
        """Yield `count` responses, which must be those of all requests in flight. Raises BenchError."""
        return map(decode_frame, self._frames(count))

    def skip(self, count: int) -> None:
        """Read and discard `count` responses. Raises BenchError."""
        for _ in self._frames(count):
            pass

    def _frames(self, count: int) -> Iterator[Frame]:
        try:
            while count and (data := self._socket.recv(_READ_AT_ONCE)):
                for frame in self._reader.receive_data(data):
                    count -= 1
                    yield frame
        except OSError as error:
            raise BenchError(f"no response: {error}") from error
        if count:
            raise BenchError("no response: connection closed")

    def success(self, frame: bytes) -> RemotingCommand:
        """Send a request and return its response, whose code must be 0. Raises BenchError."""
        response = self.request(frame)
        if response.code != ResponseCode.SUCCESS:
            raise BenchError(f"response code {response.code}: {response.remark}")
        return response

    def native(self, code: int, /, **members: Any) -> Any:
        """Send a native request and return the decoded body of its response. Raises BenchError."""
        return msgspec.msgpack.decode(self.success(native_request(code, **members)).body)

    def info(self) -> Any:
        """The response to SERVER_INFO: boot id, revision, and sizes of the tables. Raises BenchError."""
        return self.native(RequestCode.SERVER_INFO)

    def watch_frame(self, topics: Sequence[str], wait_ms: int = _WATCH_MS) -> bytes:
        """A request to which the server responds when a route of these topics changes from now on, or after a time."""
        info = self.info()
        known = {"boot_id": info["boot_id"], "since": info["revision"], "wait_ms": wait_ms}
        return native_request(RequestCode.PULL_ROUTES, topics=topics, **known)


def request(
    code: int,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    kind: SerializeType = SerializeType.JSON,
    *,
    flag: int = 0,
) -> bytes:
    """A request as a frame; members of a JSON header are in the order of a Java client."""
    if kind != SerializeType.JSON:
        command = RemotingCommand(
            code, flag=flag, opaque=_FIRST_OPAQUE, ext_fields=fields, body=body, serialize_type=kind
        )
        return encode_command(command)
    header = {
        "code": int(code),
        "extFields": dict(sorted((fields or {}).items())),
        "flag": flag,
        "language": "JAVA",
        "opaque": _FIRST_OPAQUE,
        "serializeTypeCurrentRPC": "JSON",
        "version": CURRENT_VERSION,
    }
    return encode_frame(kind, msgspec.json.encode(header), body)


def native_request(code: int, /, **members: Any) -> bytes:
    """A request of our native clients; without members it has no body."""
    return request(code, None, NATIVE.encode(members) if members else b"", SerializeType.MSGPACK)


def route_request(topic: str, kind: SerializeType = SerializeType.JSON) -> bytes:
    """A GET_ROUTEINFO_BY_TOPIC request."""
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, kind=kind)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its registration."""

    name: str
    addr: str
    topics: Sequence[TopicConfig] = ()
    cluster: str = "DefaultCluster"
    broker_id: int = 0
    # the counter of its DataVersion
    counter: int = 1
    # its expiry; None: that of the server
    expiry_ms: int | None = None
    # id of its native agent
    agent_id: str | None = None

    def changed(self, read_queue_nums: int | None = None) -> "Broker":
        """The broker with a newer DataVersion and, if given, another number of read queues."""
        topics = self.topics
        if read_queue_nums is not None:
            topics = [
                TopicConfig(each.topic_name, read_queue_nums, each.write_queue_nums, each.perm) for each in topics
            ]
        return replace(self, topics=topics, counter=self.counter + 1)

    def json_frame(self, kind: SerializeType = SerializeType.JSON) -> bytes:
        """The registration of a 5.x broker, whose header may be binary."""
        return self._frame(encode_json_body(self._body()).removesuffix(b"}}") + _MAPPING, kind)

    def compressed_frame(self) -> bytes:
        """The registration of a 5.x broker with compressedRegister=true."""
        return self._frame(write_compressed(self.topics, DataVersion(self.counter), {}, ()), is_compressed=True)

    def native_frame(self) -> bytes:
        """The registration of a native agent."""
        return self._frame(encode_native_body(self._body()), SerializeType.MSGPACK)

    def heartbeat(self, kind: SerializeType = SerializeType.JSON, *, flag: int = 0) -> bytes:
        """A BROKER_HEARTBEAT request."""
        agent = {} if self.agent_id is None else {"agentId": self.agent_id}
        return request(RequestCode.BROKER_HEARTBEAT, {**self.identity, **agent}, kind=kind, flag=flag)

    def version_query(self) -> bytes:
        """A QUERY_DATA_VERSION request with the registered version, which is the heartbeat of RocketMQ 4.x."""
        body = msgspec.json.encode({"counter": self.counter, "stateVersion": 0, "timestamp": 0})
        return request(RequestCode.QUERY_DATA_VERSION, self.identity, body)

    def unregistration(self) -> bytes:
        """An UNREGISTER_BROKER request."""
        return request(RequestCode.UNREGISTER_BROKER, self.identity)

    @property
    def identity(self) -> dict[str, str]:
        """The ext fields that name the broker."""
        return {
            "brokerAddr": self.addr,
            "brokerId": str(self.broker_id),
            "brokerName": self.name,
            "clusterName": self.cluster,
        }

    def _body(self) -> RegisterBrokerBody:
        return RegisterBrokerBody(self.topics, DataVersion(self.counter))

    def _frame(self, body: bytes, kind: SerializeType = SerializeType.JSON, *, is_compressed: bool = False) -> bytes:
        header = RegisterBrokerRequestHeader(
            broker_name=self.name,
            broker_addr=self.addr,
            cluster_name=self.cluster,
            broker_id=self.broker_id,
            ha_server_addr=self.addr,
            heartbeat_timeout_millis=self.expiry_ms,
            enable_acting_master=False,
            compressed=is_compressed,
            agent_id=self.agent_id,
            registration_seq=None if self.agent_id is None else 1,
            # The server checks the CRC of each registration.
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return request(RequestCode.REGISTER_BROKER, header.to_ext(), body, kind)


def topics(pattern: str, count: int, first: int = 0) -> list[TopicConfig]:
    """Topics named by a pattern, in which %d stands for the number."""
    return [TopicConfig(pattern.replace("%d", str(number)), _QUEUES, _QUEUES) for number in range(first, first + count)]


def pulled_brokers(more_topics: Sequence[TopicConfig] = ()) -> list[Broker]:
    """8 groups of master and slave, with the 1,000 pulled topics each; the first group also has `more_topics`."""
    pulled = topics(TOPIC_NAME, PULLED_TOPICS)
    return [
        Broker(
            f"broker{group}",
            f"127.0.0.1:{10911 + 10 * group + broker_id}",
            [*pulled, *more_topics] if group == 0 else pulled,
            broker_id=broker_id,
        )
        for group in range(_GROUPS)
        for broker_id in (0, 1)
    ]


def broker_addr(number: int) -> str:
    """An address for the broker with this number, different from those of all other numbers."""
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911"


def many_brokers(count: int, pattern: str = "", topics_each: int = 0) -> list[Broker]:
    """`count` brokers with different addresses, each with topics that no other broker has."""
    return [
        Broker(
            f"broker-{number}",
            broker_addr(number),
            topics(pattern, topics_each, number * topics_each),
        )
        for number in range(count)
    ]


def register(wire: Wire, brokers: Sequence[Broker]) -> None:
    """Register brokers, all on one connection. Raises BenchError."""
    for broker in brokers:
        wire.success(broker.json_frame())


def pulled_body_bytes(wire: Wire, kind: SerializeType = SerializeType.JSON) -> int:
    """Pull one route and return the size of its body.

    Raises:
        BenchError: a JSON body does not have the size of the reference figures.
    """
    size = len(wire.success(route_request(TOPIC_NAME % 0, kind)).body)
    if kind == SerializeType.JSON and size != PULLED_BODY_BYTES:
        raise BenchError(f"responses have bodies of {size} bytes, not {PULLED_BODY_BYTES}")
    return size
