"""Fills a server with brokers and topics by registrations over a socket."""

import socket
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from benchmarks.figures import BenchError
from benchmarks.servers import Server
from namesrv_remoting.bodies.compressed import write_compressed
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body, encode_native_body
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from namesrv_remoting.serializers import decode_frame, encode_command

_PATIENCE_SECONDS: Final = 30
_READ_AT_ONCE: Final = 1 << 20

# What the reference figures were made with. One digit of queues and seven letters of name make an answer of 1,871
# bytes; so does every other digit, which is what a changed registration changes.
PULLED_TOPICS: Final = 1_000
PULLED_BODY_BYTES: Final = 1_871
_GROUPS: Final = 8
_QUEUES: Final = 8

# What a Java broker's registration has besides, at the end of its topicConfigSerializeWrapper: rocketmq-rust refuses
# others.
_MAPPING: Final = (
    b',"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicQueueMappingDetailMap":{}}}'
)


class Wire:
    """One blocking connection, one question at a time."""

    def __init__(self, server: Server, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), patience_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, frame: bytes) -> RemotingCommand:
        """The answer to an encoded question, whatever its code.

        Raises:
            BenchError: there is none.
        """
        try:
            self._socket.sendall(frame)
            while data := self._socket.recv(_READ_AT_ONCE):
                for answer in self._reader.receive_data(data):
                    return decode_frame(answer)
        except OSError as error:
            raise BenchError(f"no answer to {len(frame)} bytes: {error}") from error
        raise BenchError(f"no answer to {len(frame)} bytes: connection closed")

    def ask_well(self, frame: bytes) -> RemotingCommand:
        """The answer, which has to be a good one.

        Raises:
            BenchError: it is not, or there is none.
        """
        answer = self.ask(frame)
        if answer.code != ResponseCode.SUCCESS:
            raise BenchError(f"answered with code {answer.code}: {answer.remark}")
        return answer


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker and what it registers."""

    cluster: str
    name: str
    broker_id: int
    addr: str
    topics: Sequence[TopicConfig] = ()
    # of its DataVersion
    counter: int = 1
    # silence after which it is dead; the server's own when there is none
    expiry_ms: int | None = None

    def changed(self, read_queue_nums: int | None = None) -> "Broker":
        """The same with a newer DataVersion; with other queues, if there is a number of them."""
        topics = self.topics
        if read_queue_nums is not None:
            topics = [
                TopicConfig(topic.topic_name, read_queue_nums, topic.write_queue_nums, topic.perm) for topic in topics
            ]
        return replace(self, topics=topics, counter=self.counter + 1)

    def json_frame(self) -> bytes:
        """Its registration as a 5.x broker sends it."""
        return self._frame(encode_json_body(self._body()).removesuffix(b"}}") + _MAPPING)

    def compressed_frame(self) -> bytes:
        """Its registration as a 5.x broker with compressedRegister=true sends it."""
        body = write_compressed(self.topics, DataVersion(self.counter), {}, ())
        return self._frame(body, is_compressed=True)

    def native_frame(self) -> bytes:
        """Its registration as a native agent sends it."""
        return self._frame(encode_native_body(self._body()), SerializeType.MSGPACK)

    def _body(self) -> RegisterBrokerBody:
        return RegisterBrokerBody(self.topics, DataVersion(self.counter))

    def _frame(
        self, body: bytes, serialize_type: SerializeType = SerializeType.JSON, *, is_compressed: bool = False
    ) -> bytes:
        header = RegisterBrokerRequestHeader(
            broker_name=self.name,
            broker_addr=self.addr,
            cluster_name=self.cluster,
            broker_id=self.broker_id,
            ha_server_addr=self.addr,
            heartbeat_timeout_millis=self.expiry_ms,
            enable_acting_master=False,
            compressed=is_compressed,
            # checked by the server, as a Java broker's is
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return encode_command(
            RemotingCommand(
                RequestCode.REGISTER_BROKER, ext_fields=header.to_ext(), body=body, serialize_type=serialize_type
            )
        )


def topics(pattern: str, count: int, first: int = 0) -> list[TopicConfig]:
    """Topics whose names differ in the number that stands for %d, as in load's options."""
    return [TopicConfig(pattern.replace("%d", str(number)), _QUEUES, _QUEUES) for number in range(first, first + count)]


def pulled_brokers(more_topics: Sequence[TopicConfig] = ()) -> list[Broker]:
    """8 groups of master and slave, all with the 1,000 topics that load asks for; the first group with more."""
    pulled = topics("TopicTest%d", PULLED_TOPICS)
    return [
        Broker(
            cluster="DefaultCluster",
            name=f"broker{group}",
            broker_id=broker_id,
            addr=f"127.0.0.1:{10911 + 10 * group + broker_id}",
            topics=[*pulled, *more_topics] if group == 0 else pulled,
        )
        for group in range(_GROUPS)
        for broker_id in (0, 1)
    ]


def native_question(code: RequestCode, question: object = None) -> bytes:
    """As our own clients ask it; without a body when there is nothing to say."""
    body = b"" if question is None else NATIVE.encode(question)
    return encode_command(RemotingCommand(code, body=body, serialize_type=SerializeType.MSGPACK))


def register(wire: Wire, brokers: Sequence[Broker]) -> None:
    """Register brokers, all on one connection."""
    for broker in brokers:
        wire.ask_well(broker.json_frame())


def pulled_body_bytes(wire: Wire, serialize_type: SerializeType) -> int:
    """The size of the answers that load will get.

    Raises:
        BenchError: it is not what the reference figures were made with.
    """
    header = GetRouteInfoRequestHeader(topic="TopicTest0")
    question = RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=header.to_ext(), serialize_type=serialize_type
    )
    size = len(wire.ask_well(encode_command(question)).body)
    if serialize_type == SerializeType.JSON and size != PULLED_BODY_BYTES:
        raise BenchError(f"answers have bodies of {size} bytes, not {PULLED_BODY_BYTES}")
    return size
