"""Body of a registration, in each of the forms that brokers send.

* before version 37: a bare TopicConfigSerializeWrapper in JSON;
* from 37 on: a RegisterBrokerBody in JSON, or zlib-compressed lines, which from version 413 on end with the
  static-topic mappings;
* native: a msgpack map, zlib-compressed when the header says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, inflate, read_json
from namesrv_remoting.bodies.compressed import MAX_FILTER_SERVERS_BYTES, read_compressed
from namesrv_remoting.bodies.json_slices import JsonSlices
from namesrv_remoting.bodies.limits import DEFAULT_LIMITS, RegistrationLimits, Tally
from namesrv_remoting.bodies.msgpack_slices import MsgpackSlices
from namesrv_remoting.bodies.topic import (
    MAX_DATA_VERSION_BYTES,
    DataVersion,
    JsonDataVersion,
    JsonTopicConfig,
    JsonTopicQueueMappingInfo,
    TopicConfig,
    TopicName,
    TopicQueueMappingInfo,
)
from namesrv_remoting.codes import VERSION_MAPPING_TAIL, VERSION_REGISTER_BODY
from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers.base import Name

# second byte: deflate's levels as zlib writes them. JSON never begins with an x.
_ZLIB_MAGIC: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_WHAT: Final = "REGISTER_BROKER"

# JSON parsed in one go: the costliest of this size takes 5 ms, and most brokers' is not larger.
_WHOLE_BYTES: Final = 16 * 1024
# Parsed in one step, and then 3 ms at most: a topic has at least 20 bytes, a mapping 7.
_TOPICS_SLICE_BYTES: Final = 64 * 1024
_MAPPINGS_SLICE_BYTES: Final = 16 * 1024
# Topics that a compressed body may have, whatever its size, and for each of its bytes: real ones have at most one.
_FREE_TOPICS: Final = 1000
_TOPICS_PER_BYTE: Final = 4
# members of a native registration and their names: there are five
_MAX_MEMBERS: Final = 64
_MAX_NAME_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """A broker's topics and what else it registers.

    `filter_servers` None leaves those known untouched, empty removes them. `data_version` None (the sender named none)
    equals no other. `deleted_topics` comes with native deltas only.
    """

    topic_configs: Sequence[TopicConfig] = ()
    data_version: DataVersion | None = None
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = ()
    deleted_topics: Sequence[str] = ()


class _JsonTopicWrapper(msgspec.Struct, gc=False, rename="camel"):
    topic_config_table: dict[str, JsonTopicConfig] = {}
    data_version: JsonDataVersion | None = None
    topic_queue_mapping_info_map: dict[str, JsonTopicQueueMappingInfo] | None = None


class _JsonRegisterBrokerBody(msgspec.Struct, gc=False, rename="camel"):
    topic_config_serialize_wrapper: _JsonTopicWrapper = msgspec.field(default_factory=_JsonTopicWrapper)
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)


class _NativeRegisterBrokerBody(msgspec.Struct, gc=False):
    topic_configs: list[TopicConfig] = []
    data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[TopicName, TopicQueueMappingInfo] = {}
    filter_server_list: list[Name] | None = None
    deleted_topics: list[TopicName] = []


_wrapper_decoder: Final = msgspec.json.Decoder(_JsonTopicWrapper)
_topics_decoder: Final = msgspec.json.Decoder(dict[str, JsonTopicConfig])
_mappings_decoder: Final = msgspec.json.Decoder(dict[str, JsonTopicQueueMappingInfo] | None)
_data_version_decoder: Final = msgspec.json.Decoder(JsonDataVersion | None)
_filters_decoder: Final = msgspec.json.Decoder(list[str] | None)
_json_decoder: Final = msgspec.json.Decoder(_JsonRegisterBrokerBody)
_native_name: Final = msgspec.msgpack.Decoder(str)
_native_topics: Final = msgspec.msgpack.Decoder(list[TopicConfig])
_native_deleted: Final = msgspec.msgpack.Decoder(list[TopicName])
_native_mappings: Final = msgspec.msgpack.Decoder(dict[TopicName, TopicQueueMappingInfo])
_native_data_version: Final = msgspec.msgpack.Decoder(DataVersion | None)
_native_filters: Final = msgspec.msgpack.Decoder(list[Name] | None)
_native_anything: Final = msgspec.msgpack.Decoder(msgspec.Raw)
_native_encoder: Final = msgspec.msgpack.Encoder()


def is_zlib(body: bytes) -> bool:
    """Whether a body begins as a zlib stream does.

    5.x brokers with compressedRegister=true compress the body but say compressed=false.
    """
    return body[:2] in _ZLIB_MAGIC


def decode_body(
    body: bytes, version: int, *, compressed: bool, limits: RegistrationLimits = DEFAULT_LIMITS
) -> Steps[RegisterBrokerBody]:
    """What a RocketMQ broker of that version registers. No body registers a broker without topics.

    Raises:
        BadRequestError: the body is in none of the forms, or beyond the limits.
    """
    if version < 0:
        message = f"version {version} is negative"
        raise BadRequestError(message)
    if not body:
        return RegisterBrokerBody(data_version=DataVersion())
    if version >= VERSION_REGISTER_BODY and (compressed or is_zlib(body)):
        inflated = inflate(body, max_bytes=limits.max_inflated_bytes, max_ratio=limits.max_inflate_ratio)
        topics, data_version, mappings, filter_servers = yield from read_compressed(
            inflated, with_mappings=version >= VERSION_MAPPING_TAIL, tally=_tally_of_stream(body, limits)
        )
        return RegisterBrokerBody(topics, data_version, mappings, filter_servers)
    if len(body) > _WHOLE_BYTES:
        return (yield from _JsonRegistration(body, Tally(limits.max_topics)).read(version))
    if version < VERSION_REGISTER_BODY:
        decoded = _JsonRegisterBrokerBody(read_json(_wrapper_decoder, body, _WHAT), None)
    else:
        decoded = read_json(_json_decoder, body, _WHAT)
    wrapper = decoded.topic_config_serialize_wrapper
    return _registration(
        wrapper.topic_config_table,
        wrapper.data_version,
        {topic: info.plain() for topic, info in (wrapper.topic_queue_mapping_info_map or {}).items()},
        decoded.filter_server_list,
        Tally(limits.max_topics),
    )


def _tally_of_stream(body: bytes, limits: RegistrationLimits) -> Tally:
    """Few kilobytes may inflate to the same topic a hundred thousand times; topics that differ take a byte each."""
    return Tally(min(limits.max_topics, max(_FREE_TOPICS, _TOPICS_PER_BYTE * len(body))))


def _registration(
    topics: Mapping[str, JsonTopicConfig],
    data_version: JsonDataVersion | None,
    mappings: Mapping[str, TopicQueueMappingInfo],
    filter_servers: list[str] | None,
    tally: Tally,
) -> RegisterBrokerBody:
    tally.check("topics", len(topics))
    tally.check("static-topic mappings", len(mappings))
    return RegisterBrokerBody(
        # the value's name counts, not the key's (RouteInfoManager)
        tuple(topics.values()),
        data_version and DataVersion(*msgspec.structs.astuple(data_version)),
        mappings,
        None if filter_servers is None else tuple(filter_servers),
    )


class _JsonRegistration:
    """A JSON body that is too large to be parsed in one go. Of a member that comes twice the last one counts."""

    def __init__(self, body: bytes, tally: Tally) -> None:
        self._slices = JsonSlices(body, _WHAT)
        self._tally = tally
        self._topics: dict[str, JsonTopicConfig] = {}
        self._mappings: dict[str, TopicQueueMappingInfo] = {}
        self._data_version: JsonDataVersion | None = None
        self._filter_servers: list[str] | None = []

    def read(self, version: int) -> Steps[RegisterBrokerBody]:
        if version < VERSION_REGISTER_BODY:
            self._filter_servers = None
            yield from self._slices.document(self._wrapper)
        else:
            yield from self._slices.document(self._body)
        return _registration(self._topics, self._data_version, self._mappings, self._filter_servers, self._tally)

    def _body(self, at: int) -> Steps[int]:
        readers = {"filterServerList": self._read_filter_servers, "topicConfigSerializeWrapper": self._wrapper}
        return (yield from self._slices.object(at, readers))

    def _wrapper(self, at: int) -> Steps[int]:
        self._topics, self._mappings, self._data_version = {}, {}, None
        readers = {
            "dataVersion": self._read_data_version,
            "topicConfigTable": self._read_topics,
            "topicQueueMappingInfoMap": self._read_mappings,
        }
        return (yield from self._slices.object(at, readers))

    def _read_filter_servers(self, at: int) -> Steps[int]:
        self._filter_servers, at = yield from self._slices.value(at, _filters_decoder, MAX_FILTER_SERVERS_BYTES)
        return at

    def _read_data_version(self, at: int) -> Steps[int]:
        self._data_version, at = yield from self._slices.value(at, _data_version_decoder, MAX_DATA_VERSION_BYTES)
        return at

    def _read_topics(self, at: int) -> Steps[int]:
        self._topics = {}
        return (yield from self._slices.table(at, _topics_decoder, _TOPICS_SLICE_BYTES, self._take_topics))

    def _take_topics(self, topics: dict[str, JsonTopicConfig]) -> None:
        self._topics.update(topics)
        self._tally.check("topics", len(self._topics))

    def _read_mappings(self, at: int) -> Steps[int]:
        self._mappings = {}
        return (yield from self._slices.table(at, _mappings_decoder, _MAPPINGS_SLICE_BYTES, self._take_mappings))

    def _take_mappings(self, mappings: dict[str, JsonTopicQueueMappingInfo] | None) -> None:
        for topic, info in (mappings or {}).items():
            self._tally.count(info)
            self._mappings[topic] = info.plain()
        self._tally.check("static-topic mappings", len(self._mappings))


def decode_native_body(
    body: bytes, *, compressed: bool, limits: RegistrationLimits = DEFAULT_LIMITS
) -> Steps[RegisterBrokerBody]:
    """What a native broker registers.

    Raises:
        BadRequestError: the body is not the msgpack map that it should be, or beyond the limits.
    """
    if not body:
        return RegisterBrokerBody(data_version=DataVersion(), filter_servers=None)
    if compressed:
        chunks = inflate(body, max_bytes=limits.max_inflated_bytes, max_ratio=limits.max_inflate_ratio)
        tally = _tally_of_stream(body, limits)
    else:
        tally = Tally(limits.max_topics)
        chunks = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
    return (yield from _native_registration(MsgpackSlices(chunks, _WHAT), tally))


def _native_registration(slices: MsgpackSlices, tally: Tally) -> Steps[RegisterBrokerBody]:
    topics: list[TopicConfig] = []
    deleted: list[str] = []
    mappings: dict[str, TopicQueueMappingInfo] = {}
    data_version: DataVersion | None = None
    filter_servers: list[str] | None = None

    def take_mappings(taken: dict[str, TopicQueueMappingInfo]) -> None:
        for info in taken.values():
            tally.count(info)
        mappings.update(taken)

    for _ in range((yield from slices.map_length("members", _MAX_MEMBERS))):
        name = yield from slices.value(_native_name, _MAX_NAME_BYTES)
        # of a member that comes twice the last one counts
        if name == "topic_configs":
            topics.clear()
            yield from slices.array("topics", tally.max_topics, _native_topics, topics.extend)
        elif name == "deleted_topics":
            deleted.clear()
            yield from slices.array("deleted topics", tally.max_topics, _native_deleted, deleted.extend)
        elif name == "topic_queue_mapping_info_map":
            mappings.clear()
            yield from slices.table("static-topic mappings", tally.max_topics, _native_mappings, take_mappings)
        elif name == "data_version":
            data_version = yield from slices.value(_native_data_version, MAX_DATA_VERSION_BYTES)
        elif name == "filter_server_list":
            filter_servers = yield from slices.value(_native_filters, MAX_FILTER_SERVERS_BYTES)
        else:
            yield from slices.value(_native_anything)
    yield from slices.end()
    return RegisterBrokerBody(
        tuple(topics),
        data_version,
        mappings,
        None if filter_servers is None else tuple(filter_servers),
        tuple(deleted),
    )


def encode_native_body(body: RegisterBrokerBody) -> bytes:
    """The native spelling of a registration, not compressed."""
    return _native_encoder.encode(
        _NativeRegisterBrokerBody(
            list(body.topic_configs),
            body.data_version,
            dict(body.mappings),
            None if body.filter_servers is None else list(body.filter_servers),
            list(body.deleted_topics),
        )
    )


def encode_json_body(body: RegisterBrokerBody) -> bytes:
    """The RegisterBrokerBody JSON that a 5.x broker sends."""
    wrapper = {
        "dataVersion": data_version_members(body.data_version or DataVersion()),
        "topicConfigTable": {topic.topic_name: _topic_members(topic) for topic in body.topic_configs},
        "topicQueueMappingInfoMap": {
            topic: JsonTopicQueueMappingInfo(*msgspec.structs.astuple(info)) for topic, info in body.mappings.items()
        },
    }
    return msgspec.json.encode(
        {"filterServerList": list(body.filter_servers or ()), "topicConfigSerializeWrapper": wrapper}
    )


def data_version_members(version: DataVersion) -> dict[str, int]:
    """A DataVersion as Java's JSON members."""
    return {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}


def _topic_members(topic: TopicConfig) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic.topic_name,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }
