"""Answers that RocketMQ has, too, as clients read them: routes, clusters, lists of topics, key-value tables.

In JSON in any dialect that a NameServer writes (fastjson leaves out nulls and quotes no integer keys), or natively.
What cannot be read is the server's fault: each of these raises RemoteProtocolError.
"""

from typing import Final, TypeVar

import msgspec

from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import JsonTopicQueueMappingInfo, TopicQueueMappingInfo
from namesrv_remoting.errors import RemoteProtocolError, ResponseError

T = TypeVar("T")


class ClusterInfo(msgspec.Struct):
    """106: broker groups by name, and the names of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class _JsonBrokerData(msgspec.Struct, rename="camel"):
    broker_name: str
    broker_addrs: dict[int, str] | None = None
    cluster: str | None = None
    zone_name: str | None = None
    enable_acting_master: bool = False

    def plain(self) -> BrokerData:
        return BrokerData(
            self.cluster or "", self.broker_name, self.broker_addrs or {}, self.zone_name, self.enable_acting_master
        )


class _JsonQueueData(msgspec.Struct, rename="camel"):
    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0
    # how it was spelt before 4.9.0
    topic_syn_flag: int = 0

    def plain(self) -> QueueData:
        flag = self.topic_sys_flag or self.topic_syn_flag
        return QueueData(self.broker_name, self.read_queue_nums, self.write_queue_nums, self.perm, flag)


class _JsonRoute(msgspec.Struct, rename="camel"):
    broker_datas: list[_JsonBrokerData] | None = None
    queue_datas: list[_JsonQueueData] | None = None
    filter_server_table: dict[str, list[str]] | None = None
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, JsonTopicQueueMappingInfo] | None = None


class _JsonClusterInfo(msgspec.Struct, rename="camel"):
    broker_addr_table: dict[str, _JsonBrokerData] | None = None
    cluster_addr_table: dict[str, list[str]] | None = None


class _TopicList(msgspec.Struct):
    topic_list: list[str]


class _JsonTopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str] | None = None


class _KVTable(msgspec.Struct):
    table: dict[str, str] | None = None


_json_route: Final = msgspec.json.Decoder(_JsonRoute)
_json_cluster_info: Final = msgspec.json.Decoder(_JsonClusterInfo)
_native_cluster_info: Final = msgspec.msgpack.Decoder(ClusterInfo)
_json_topic_list: Final = msgspec.json.Decoder(_JsonTopicList)
_native_topic_list: Final = msgspec.msgpack.Decoder(_TopicList)
_json_kv_table: Final = msgspec.json.Decoder(_KVTable)
_native_kv_table: Final = msgspec.msgpack.Decoder(_KVTable)


def read_route(body: bytes) -> TopicRouteData:
    """105, in JSON."""
    found = _json(_json_route, body, "TopicRouteData")
    mappings = found.topic_queue_mapping_by_broker
    return TopicRouteData(
        [data.plain() for data in found.broker_datas or ()],
        [queue.plain() for queue in found.queue_datas or ()],
        found.filter_server_table or {},
        found.order_topic_conf,
        None
        if not mappings
        else {name: TopicQueueMappingInfo(*msgspec.structs.astuple(info)) for name, info in mappings.items()},
    )


def read_cluster_info(body: bytes, *, native: bool) -> ClusterInfo:
    """106."""
    if native:
        return _native(_native_cluster_info, body, "ClusterInfo")
    found = _json(_json_cluster_info, body, "ClusterInfo")
    groups = {name: data.plain() for name, data in (found.broker_addr_table or {}).items()}
    return ClusterInfo(groups, found.cluster_addr_table or {})


def read_topic_list(body: bytes, *, native: bool) -> list[str]:
    """206 and 224."""
    if native:
        return _native(_native_topic_list, body, "TopicList").topic_list
    return _json(_json_topic_list, body, "TopicList").topic_list or []


def read_kv_table(body: bytes, *, native: bool) -> dict[str, str]:
    """219."""
    found = _native(_native_kv_table, body, "KVTable") if native else _json(_json_kv_table, body, "KVTable")
    return found.table or {}


def _native(decoder: msgspec.msgpack.Decoder[T], body: bytes, what: str) -> T:
    try:
        return read_msgpack(decoder, body, what)
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error


def _json(decoder: msgspec.json.Decoder[T], body: bytes, what: str) -> T:
    try:
        return read_json(decoder, body, what)
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error
