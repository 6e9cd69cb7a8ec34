"""Routes in memory, in RocketMQ's JSON and in a native answer.

JSON is always standard (integer keys quoted), compact and in alphabetical order: Java, Go and Node read quoted keys,
and a blank after "," or ":" makes the Go client put the slave in the master's place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgpack
import msgspec

from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.headers.base import Int32, Name


class QueueData(msgspec.Struct, frozen=True, gc=False):
    """The queues of one topic on one broker group."""

    broker_name: Name
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(msgspec.Struct, frozen=True, gc=False):
    """One broker group: its instances by id; the master is id 0."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False

    def logged(self) -> dict[str, Any]:
        """As heartbeat logs have it (docs/heartbeat-log.md): `{"name": str, "master": bool, "ids": [int]}`."""
        return {"name": self.broker_name, "master": MASTER_ID in self.broker_addrs, "ids": sorted(self.broker_addrs)}


class TopicRouteData(msgspec.Struct, frozen=True):
    """Where the queues of one topic are.

    `filter_server_table` holds only addresses that have filter servers; `order_topic_conf` is None unless order topics
    are on, because Java takes the static-topic path only then; mappings are by broker name.
    """

    broker_datas: Sequence[BrokerData]
    queue_datas: Sequence[QueueData]
    filter_server_table: Mapping[str, Sequence[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: Mapping[str, TopicQueueMappingInfo] | None = None


class _JsonQueueData(QueueData, frozen=True, gc=False, rename="camel"):
    broker_name: Name
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class _JsonQueueDatas(msgspec.Struct, gc=False, rename="camel"):
    queue_datas: list[_JsonQueueData] | None = None


class _NativeQueueDatas(msgspec.Struct, gc=False):
    queue_datas: list[QueueData] | None = None


# 217 names a topic's queues on each broker group, 100 to 250 bytes for one; this has room for five hundred.
MAX_QUEUE_DATAS_BYTES: Final = 128 * 1024
_json_queue_datas: Final = msgspec.json.Decoder(_JsonQueueDatas)
_native_queue_datas: Final = msgspec.msgpack.Decoder(_NativeQueueDatas)


def queue_datas_from_json(body: bytes) -> list[QueueData]:
    """The queues in a TopicRouteData body (all that 217 uses of it).

    Raises:
        BadRequestError: the body is not a TopicRouteData.
    """
    found = read_json(_json_queue_datas, body, "TopicRouteData", max_bytes=MAX_QUEUE_DATAS_BYTES).queue_datas or []
    return [
        QueueData(queue.broker_name, queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag)
        for queue in found
    ]


def route_to_json(route: TopicRouteData) -> bytes:
    """The body of a GET_ROUTEINFO_BY_TOPIC answer."""
    members: dict[str, Any] = {
        "brokerDatas": [broker_data_members(data) for data in route.broker_datas],
        "filterServerTable": {addr: list(servers) for addr, servers in route.filter_server_table.items()},
    }
    if route.order_topic_conf is not None:
        members["orderTopicConf"] = route.order_topic_conf
    members["queueDatas"] = [
        {
            "brokerName": queue.broker_name,
            "perm": queue.perm,
            "readQueueNums": queue.read_queue_nums,
            "topicSysFlag": queue.topic_sys_flag,
            "writeQueueNums": queue.write_queue_nums,
        }
        for queue in route.queue_datas
    ]
    if route.topic_queue_mapping_by_broker:
        members["topicQueueMappingByBroker"] = {
            name: _mapping_members(info) for name, info in route.topic_queue_mapping_by_broker.items()
        }
    return msgspec.json.encode(members)


def broker_data_members(data: BrokerData) -> dict[str, Any]:
    """A BrokerData as Java's JSON members."""
    members: dict[str, Any] = {
        "brokerAddrs": {broker_id: data.broker_addrs[broker_id] for broker_id in sorted(data.broker_addrs)},
        "brokerName": data.broker_name,
        "cluster": data.cluster,
        "enableActingMaster": data.enable_acting_master,
    }
    if data.zone_name is not None:
        members["zoneName"] = data.zone_name
    return members


def _mapping_members(info: TopicQueueMappingInfo) -> dict[str, Any]:
    members = {
        "bname": info.bname,
        "currIdMap": info.curr_id_map,
        "dirty": info.dirty,
        "epoch": info.epoch,
        "scope": info.scope,
        "topic": info.topic,
        "totalQueues": info.total_queues,
    }
    return {name: value for name, value in members.items() if value is not None}


def cluster_info_to_json(brokers: Iterable[BrokerData], clusters: Mapping[str, Iterable[str]]) -> bytes:
    """The body of a GET_BROKER_CLUSTER_INFO answer."""
    return msgspec.json.encode(
        {
            "brokerAddrTable": {data.broker_name: broker_data_members(data) for data in brokers},
            "clusterAddrTable": {cluster: sorted(names) for cluster, names in clusters.items()},
        }
    )


def member_group_to_json(cluster: str, broker_name: str, broker_addrs: Mapping[int, str]) -> bytes:
    """The body of a GET_BROKER_MEMBER_GROUP answer."""
    group = {"brokerAddrs": dict(broker_addrs), "brokerName": broker_name, "cluster": cluster}
    return msgspec.json.encode({"brokerMemberGroup": group})


def route_members(route: TopicRouteData) -> dict[str, Any]:
    """A route as the members of a native body: RocketMQ's names in snake_case, integer keys as integers."""
    return {
        "broker_datas": [broker_data_native(data) for data in route.broker_datas],
        "queue_datas": [msgspec.structs.asdict(queue) for queue in route.queue_datas],
        "filter_server_table": {addr: list(servers) for addr, servers in route.filter_server_table.items()},
        "order_topic_conf": route.order_topic_conf,
        "topic_queue_mapping_by_broker": None
        if route.topic_queue_mapping_by_broker is None
        else {name: msgspec.structs.asdict(info) for name, info in route.topic_queue_mapping_by_broker.items()},
    }


def broker_data_native(data: BrokerData) -> dict[str, Any]:
    """A BrokerData as native members."""
    return {
        "cluster": data.cluster,
        "broker_name": data.broker_name,
        "broker_addrs": dict(data.broker_addrs),
        "zone_name": data.zone_name,
        "enable_acting_master": data.enable_acting_master,
    }


def route_to_native(route: TopicRouteData) -> bytes:
    """The native body of a GET_ROUTEINFO_BY_TOPIC answer."""
    packed: bytes = msgpack.packb(route_members(route))
    return packed


def cluster_info_to_native(brokers: Iterable[BrokerData], clusters: Mapping[str, Iterable[str]]) -> bytes:
    """The native body of a GET_BROKER_CLUSTER_INFO answer."""
    return msgspec.msgpack.encode(
        {
            "broker_addr_table": {data.broker_name: broker_data_native(data) for data in brokers},
            "cluster_addr_table": {cluster: sorted(names) for cluster, names in clusters.items()},
        }
    )


def member_group_to_native(cluster: str, broker_name: str, broker_addrs: Mapping[int, str]) -> bytes:
    """The native body of a GET_BROKER_MEMBER_GROUP answer."""
    group = {"cluster": cluster, "broker_name": broker_name, "broker_addrs": dict(broker_addrs)}
    return msgspec.msgpack.encode({"broker_member_group": group})


def queue_datas_from_native(body: bytes) -> list[QueueData]:
    """The queues in a native route (all that 217 uses of it).

    Raises:
        BadRequestError: the body is not a route, or a number is missing in its queues: natively none has a default.
    """
    return read_msgpack(_native_queue_datas, body, "TopicRouteData", max_bytes=MAX_QUEUE_DATAS_BYTES).queue_datas or []
