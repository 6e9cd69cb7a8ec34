"""What does a registration carry, in each of the forms that brokers send it?

* before version 37: a bare TopicConfigSerializeWrapper in JSON;
* from 37 on: a RegisterBrokerBody in JSON, or zlib-compressed lines, which from version 413 on end with the
  static-topic mappings;
* native: a msgpack map, zlib-compressed when the header says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from namesrv_remoting.bodies.base import inflate, read_json, read_msgpack
from namesrv_remoting.bodies.compressed import read_compressed
from namesrv_remoting.bodies.topic import (
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


@dataclass(frozen=True, slots=True)
class InflateLimits:
    """How much a compressed body may become."""

    max_bytes: int = 64 * 1024 * 1024
    max_ratio: int = 200


DEFAULT_INFLATE_LIMITS: Final = InflateLimits()


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
_json_decoder: Final = msgspec.json.Decoder(_JsonRegisterBrokerBody)
_native_decoder: Final = msgspec.msgpack.Decoder(_NativeRegisterBrokerBody)
_native_encoder: Final = msgspec.msgpack.Encoder()


def is_zlib(body: bytes) -> bool:
    """Whether a body begins as a zlib stream does.

    5.x brokers with compressedRegister=true compress the body but say compressed=false.
    """
    return body[:2] in _ZLIB_MAGIC


def decode_body(
    body: bytes, version: int, *, compressed: bool, limits: InflateLimits = DEFAULT_INFLATE_LIMITS
) -> RegisterBrokerBody:
    """What a RocketMQ broker of that version registers. No body registers a broker without topics.

    Raises:
        BadRequestError: the body is in none of the forms, or larger than the limits once inflated.
    """
    if version < 0:
        message = f"version {version} is negative"
        raise BadRequestError(message)
    if not body:
        return RegisterBrokerBody(data_version=DataVersion())
    if version < VERSION_REGISTER_BODY:
        return _from_wrapper(read_json(_wrapper_decoder, body, _WHAT), None)
    if compressed or is_zlib(body):
        inflated = inflate(body, max_bytes=limits.max_bytes, max_ratio=limits.max_ratio)
        topics, data_version, mappings, filter_servers = read_compressed(
            inflated, with_mappings=version >= VERSION_MAPPING_TAIL
        )
        return RegisterBrokerBody(topics, data_version, mappings, filter_servers)
    decoded = read_json(_json_decoder, body, _WHAT)
    return _from_wrapper(decoded.topic_config_serialize_wrapper, decoded.filter_server_list)


def _from_wrapper(wrapper: _JsonTopicWrapper, filter_servers: list[str] | None) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        # the value's name counts, not the key's (RouteInfoManager)
        tuple(wrapper.topic_config_table.values()),
        wrapper.data_version and DataVersion(*msgspec.structs.astuple(wrapper.data_version)),
        {
            topic: TopicQueueMappingInfo(*msgspec.structs.astuple(info))
            for topic, info in (wrapper.topic_queue_mapping_info_map or {}).items()
        },
        None if filter_servers is None else tuple(filter_servers),
    )


def decode_native_body(
    body: bytes, *, compressed: bool, limits: InflateLimits = DEFAULT_INFLATE_LIMITS
) -> RegisterBrokerBody:
    """What a native broker registers.

    Raises:
        BadRequestError: the body is not the msgpack map that it should be, or too large once inflated.
    """
    if not body:
        return RegisterBrokerBody(data_version=DataVersion(), filter_servers=None)
    if compressed:
        body = inflate(body, max_bytes=limits.max_bytes, max_ratio=limits.max_ratio)
    decoded = read_msgpack(_native_decoder, body, _WHAT)
    return RegisterBrokerBody(
        tuple(decoded.topic_configs),
        decoded.data_version,
        decoded.topic_queue_mapping_info_map,
        None if decoded.filter_server_list is None else tuple(decoded.filter_server_list),
        tuple(decoded.deleted_topics),
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
