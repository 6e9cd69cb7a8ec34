"""The body of a registration, in all forms that brokers send.

* before version 37: a bare TopicConfigSerializeWrapper in JSON;
* from 37 on: a RegisterBrokerBody in JSON, or zlib-compressed lines, which from version 413 on end with the
  static-topic mappings;
* native: a msgpack map, zlib-compressed if the header marks it as compressed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses, check_advertised
from namesrv_remoting.bodies.base import CHUNK_BYTES, Steps, emptied, emptied_on_refusal, inflate, read_json
from namesrv_remoting.bodies.compressed import MAX_FILTER_SERVERS_BYTES, check_filter_servers, read_compressed
from namesrv_remoting.bodies.dialects import NATIVE, in_java, java
from namesrv_remoting.bodies.limits import DEFAULT_LIMITS, RegistrationLimits, Tally
from namesrv_remoting.bodies.slices import Elements, Group, JsonMember, JsonSlices, MsgpackMember, Table, Whole
from namesrv_remoting.bodies.topic import (
    MAX_DATA_VERSION_BYTES,
    DataVersion,
    TopicConfig,
    TopicName,
    TopicQueueMappingInfo,
)
from namesrv_remoting.codes import VERSION_MAPPING_TAIL, VERSION_REGISTER_BODY
from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers import Name

# The first bytes of a zlib stream, one entry for each compression level; JSON never begins with an x.
_ZLIB_MAGIC: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_WHAT: Final = "REGISTER_BROKER"

# JSON up to this size is parsed at once: the costliest takes 5 ms, and most registrations are not larger.
_WHOLE_BYTES: Final = 16 * 1024
# Bytes of a slice, which is parsed in one step of at most 1.5 ms: a topic has at least 20 bytes, a mapping 7.
_TOPICS_SLICE_BYTES: Final = 16 * 1024
_MAPPINGS_SLICE_BYTES: Final = 8 * 1024
# A compressed body may have `_FREE_TOPICS` topics, or `_TOPICS_PER_BYTE` for each of its bytes if these are more: real
# bodies have at most one topic for each byte.
_FREE_TOPICS: Final = 1000
_TOPICS_PER_BYTE: Final = 4


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """The content of a registration: topics, data version, static-topic mappings and filter servers.

    `filter_servers` None keeps the registered filter servers, an empty tuple removes them. A `data_version` of None (no
    version was sent) equals no other version. `deleted_topics` is used by native deltas only. `advertised` is used by
    all native registrations, and replaces the addresses that the broker advertised before.
    """

    topic_configs: Sequence[TopicConfig] = ()
    data_version: DataVersion | None = None
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = ()
    deleted_topics: Sequence[str] = ()
    advertised: AdvertisedAddresses = NOTHING_ADVERTISED


class _Wrapper(msgspec.Struct):
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None


class _JsonBody(msgspec.Struct):
    topic_config_serialize_wrapper: _Wrapper = msgspec.field(default_factory=_Wrapper)
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)


_topic_name: Final = attrgetter("topic_name")
_json_body: Final = msgspec.json.Decoder(java(_JsonBody))
_json_wrapper: Final = msgspec.json.Decoder(java(_Wrapper))
_json_topics: Final = msgspec.json.Decoder(java(dict[str, TopicConfig]))
_json_mappings: Final = msgspec.json.Decoder(java(dict[str, TopicQueueMappingInfo] | None))
_json_data_version: Final = msgspec.json.Decoder(java(DataVersion | None))
_json_filters: Final = msgspec.json.Decoder(list[str] | None)
_native_topics: Final = msgspec.msgpack.Decoder(list[TopicConfig])
_native_deleted: Final = msgspec.msgpack.Decoder(list[TopicName])
_native_mappings: Final = msgspec.msgpack.Decoder(dict[TopicName, TopicQueueMappingInfo])
_native_data_version: Final = msgspec.msgpack.Decoder(DataVersion | None)
_native_filters: Final = msgspec.msgpack.Decoder(list[Name] | None)
_native_advertised: Final = msgspec.msgpack.Decoder(AdvertisedAddresses)
# Sixteen views, with addresses of the broker and of its HA server, take half of this if their names are ASCII.
_MAX_ADVERTISED_BYTES: Final = 32 * 1024


def is_zlib(body: bytes) -> bool:
    """True if a body begins like a zlib stream.

    5.x brokers with compressedRegister=true compress the body but send compressed=false.
    """
    return body[:2] in _ZLIB_MAGIC


def decode_body(
    body: bytes, version: int, *, compressed: bool, limits: RegistrationLimits = DEFAULT_LIMITS
) -> Steps[RegisterBrokerBody]:
    """Decode the body of a RocketMQ broker of this version; an empty body has no topics. Raises BadRequestError."""
    if version < 0:
        raise BadRequestError(f"version {version} is negative")
    if not body:
        return RegisterBrokerBody(data_version=DataVersion())
    is_bare = version < VERSION_REGISTER_BODY
    if not is_bare and (compressed or is_zlib(body)):
        inflated = inflate(body, max_bytes=limits.max_inflated_bytes, max_ratio=limits.max_inflate_ratio)
        topics, data_version, mappings, filter_servers = yield from read_compressed(
            inflated, with_mappings=version >= VERSION_MAPPING_TAIL, tally=_tally_of_stream(body, limits)
        )
        return RegisterBrokerBody(topics, data_version, mappings, filter_servers)
    parts = _PartialBody(Tally(limits.max_topics), filter_servers=None if is_bare else [])
    if len(body) > _WHOLE_BYTES:
        steps = JsonSlices(body, _WHAT).read(parts.of_wrapper() if is_bare else parts.of_json())
        yield from emptied_on_refusal(steps, *parts.decoded)
    elif is_bare:
        parts.take_wrapper(read_json(_json_wrapper, body, _WHAT))
    else:
        whole = read_json(_json_body, body, _WHAT)
        parts.take_wrapper(whole.topic_config_serialize_wrapper)
        parts.take_filter_servers(whole.filter_server_list)
    return (yield from parts.registration())


def decode_native_body(
    body: bytes, *, compressed: bool, limits: RegistrationLimits = DEFAULT_LIMITS
) -> Steps[RegisterBrokerBody]:
    """Decode the body of a native broker. Raises BadRequestError for a malformed body, or one beyond the limits."""
    if not body:
        return RegisterBrokerBody(data_version=DataVersion(), filter_servers=None)
    from namesrv_remoting.bodies.msgpack_slices import MsgpackSlices  # noqa: PLC0415  # agents do not need this module

    if compressed:
        chunks = inflate(body, max_bytes=limits.max_inflated_bytes, max_ratio=limits.max_inflate_ratio)
        tally = _tally_of_stream(body, limits)
    else:
        tally = Tally(limits.max_topics)
        chunks = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
    parts = _PartialBody(tally, filter_servers=None)
    steps = MsgpackSlices(chunks, _WHAT, "registration").read(parts.of_native())
    yield from emptied_on_refusal(steps, *parts.decoded)
    return (yield from parts.registration())


def _tally_of_stream(body: bytes, limits: RegistrationLimits) -> Tally:
    """A limit by the compressed size, because a few kilobytes may inflate to one topic a hundred thousand times.

    Different topics take at least a byte each.
    """
    return Tally(min(limits.max_topics, max(_FREE_TOPICS, _TOPICS_PER_BYTE * len(body))))


class _PartialBody:
    """The content of a registration decoded so far; if a member occurs twice, the last one counts."""

    def __init__(self, tally: Tally, *, filter_servers: list[str] | None) -> None:
        self._tally = tally
        self._topics: list[TopicConfig] = []
        # The topics by their keys in JSON, used instead of `_topics` once a key differs from its topic's name; as in
        # RouteInfoManager the topic's name counts, but of a repeated key only the last topic.
        self._by_key: dict[str, TopicConfig] = {}
        self._deleted: list[str] = []
        self._mappings: dict[str, TopicQueueMappingInfo] = {}
        self._data_version: DataVersion | None = None
        self._filter_servers = filter_servers
        self._advertised = NOTHING_ADVERTISED
        # the members that may be large, which `emptied_on_refusal` empties
        self.decoded = self._topics, self._by_key, self._deleted, self._mappings

    def of_json(self) -> Mapping[str, JsonMember]:
        """The members of a RegisterBrokerBody."""
        return {
            "filterServerList": Whole(_json_filters, self.take_filter_servers, MAX_FILTER_SERVERS_BYTES),
            "topicConfigSerializeWrapper": Group(self._begin_wrapper, self.of_wrapper()),
        }

    def of_wrapper(self) -> Mapping[str, JsonMember]:
        """The members of a TopicConfigSerializeWrapper."""
        topics, mappings = self._begin_topics, self._mappings.clear
        return {
            "dataVersion": Whole(_json_data_version, self._take_data_version, MAX_DATA_VERSION_BYTES),
            "topicConfigTable": Table(_json_topics, self._take_topics, topics, _TOPICS_SLICE_BYTES),
            "topicQueueMappingInfoMap": Table(_json_mappings, self._take_mappings, mappings, _MAPPINGS_SLICE_BYTES),
        }

    def of_native(self) -> Mapping[str, MsgpackMember]:
        """The members of a native registration."""
        topics, deleted, most = self._topics, self._deleted, self._tally.max_topics
        return {
            "topic_configs": Elements(_native_topics, topics.extend, topics.clear, "topics", most),
            "deleted_topics": Elements(_native_deleted, deleted.extend, deleted.clear, "deleted topics", most),
            "topic_queue_mapping_info_map": Elements(
                _native_mappings, self._take_mappings, self._mappings.clear, "static-topic mappings", most
            ),
            "data_version": Whole(_native_data_version, self._take_data_version, MAX_DATA_VERSION_BYTES),
            "filter_server_list": Whole(_native_filters, self.take_filter_servers, MAX_FILTER_SERVERS_BYTES),
            "advertised": Whole(_native_advertised, self._take_advertised, _MAX_ADVERTISED_BYTES),
        }

    def take_wrapper(self, wrapper: _Wrapper) -> None:
        self._take_topics(wrapper.topic_config_table)
        self._take_data_version(wrapper.data_version)
        self._take_mappings(wrapper.topic_queue_mapping_info_map)

    def take_filter_servers(self, filter_servers: list[str] | None) -> None:
        check_filter_servers(filter_servers)
        self._filter_servers = filter_servers

    def registration(self) -> Steps[RegisterBrokerBody]:
        topics = [*self._by_key.values()] or self._topics
        yield from emptied(self._by_key)
        return RegisterBrokerBody(
            topics,
            self._data_version,
            self._mappings,
            None if self._filter_servers is None else tuple(self._filter_servers),
            tuple(self._deleted),
            self._advertised,
        )

    def _begin_wrapper(self) -> None:
        self._begin_topics()
        self._mappings.clear()
        self._data_version = None

    def _begin_topics(self) -> None:
        self._topics.clear()
        self._by_key.clear()

    def _take_topics(self, topics: dict[str, TopicConfig]) -> None:
        if not self._by_key and [*topics] == [*map(_topic_name, topics.values())]:
            # The usual case. A repeated topic may stay in the list, because applying the list keeps the last one.
            self._topics += topics.values()
        else:
            if not self._by_key:
                self._by_key.update(zip(map(_topic_name, self._topics), self._topics, strict=True))
                self._topics.clear()
            self._by_key.update(topics)
        self._tally.check("topics", len(self._topics) + len(self._by_key))

    def _take_advertised(self, advertised: AdvertisedAddresses) -> None:
        for name in AdvertisedAddresses.__struct_fields__:
            try:
                check_advertised(getattr(advertised, name))
            except ValueError as error:
                raise BadRequestError(f"advertised.{name}: {error}") from error
        self._advertised = advertised

    def _take_data_version(self, data_version: DataVersion | None) -> None:
        self._data_version = data_version and msgspec.convert(data_version, DataVersion, from_attributes=True)

    def _take_mappings(self, mappings: dict[str, TopicQueueMappingInfo] | None) -> None:
        for topic, info in (mappings or {}).items():
            self._tally.count(info)
            # Converted to the native class, because structs of different classes are never equal.
            self._mappings[topic] = msgspec.convert(info, TopicQueueMappingInfo, from_attributes=True)
        self._tally.check("static-topic mappings", len(self._mappings))


def encode_native_body(body: RegisterBrokerBody) -> bytes:
    """The native body of a registration, not compressed."""
    members: dict[str, object] = {
        "topic_configs": body.topic_configs,
        "data_version": body.data_version,
        "topic_queue_mapping_info_map": body.mappings,
        "filter_server_list": body.filter_servers,
        "deleted_topics": body.deleted_topics,
    }
    if body.advertised != NOTHING_ADVERTISED:
        members["advertised"] = body.advertised
    return NATIVE.encode(members)


def encode_json_body(body: RegisterBrokerBody) -> bytes:
    """The RegisterBrokerBody JSON that a 5.x broker sends."""
    wrapper = {
        "dataVersion": in_java(body.data_version or DataVersion()),
        "topicConfigTable": {topic.topic_name: _sent(topic) for topic in body.topic_configs},
        "topicQueueMappingInfoMap": in_java(body.mappings, dict[str, TopicQueueMappingInfo]),
    }
    return msgspec.json.encode({"filterServerList": body.filter_servers or (), "topicConfigSerializeWrapper": wrapper})


def _sent(topic: TopicConfig) -> dict[str, object]:
    """A topic as Java sends it, including members that no NameServer uses."""
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
