"""Bodies of responses: routes, clusters and small tables.

In JSON they are standard (integer keys quoted), compact and in alphabetical order: Java, Go and Node read quoted keys,
and a blank after "," or ":" makes the Go client put the slave in the master's place.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from namesrv_remoting.bodies.dialects import JSON, Dialect
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.headers import Int32, Name

# The body of 217 takes 100 to 250 bytes for each broker group of a topic; this has room for five hundred groups.
MAX_QUEUE_DATAS_BYTES: Final = 128 * 1024


class QueueData(msgspec.Struct, frozen=True, gc=False):
    """The queues of one topic on one broker group."""

    broker_name: Name
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(msgspec.Struct, frozen=True, gc=False):
    """One broker group: the addresses of its brokers by id; the master is id 0."""

    cluster: str
    broker_name: Name
    broker_addrs: Mapping[int, str]
    zone_name: str | None = None
    enable_acting_master: bool = False

    def logged(self) -> dict[str, Any]:
        """The group's form in heartbeat logs (docs/heartbeat-log.md): `{"name": str, "master": bool, "ids": [int]}`."""
        return {"name": self.broker_name, "master": MASTER_ID in self.broker_addrs, "ids": sorted(self.broker_addrs)}


class TopicRouteData(msgspec.Struct, frozen=True):
    """105: the brokers and queues of one topic.

    `filter_server_table` has only addresses with filter servers. `order_topic_conf` is None unless order topics are
    enabled, and the mappings by broker name are None unless the topic has mappings: Java behaves differently if these
    members are present.
    """

    broker_datas: Sequence[BrokerData]
    queue_datas: Sequence[QueueData]
    filter_server_table: Mapping[str, Sequence[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: Mapping[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(msgspec.Struct, frozen=True):
    """106: broker groups by name, and the names of the groups of each cluster."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, Sequence[str]]


class MemberGroup(msgspec.Struct, frozen=True):
    """One broker group; without addresses if no broker of the group is registered."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]


class BrokerMemberGroup(msgspec.Struct, frozen=True):
    """901: the members of one broker group."""

    broker_member_group: MemberGroup


class TopicList(msgspec.Struct, frozen=True):
    """206, 224, 304 and 311 to 313: names of topics; 304 adds the address of one broker."""

    topic_list: Sequence[str]
    broker_addr: str | None = None


class KVTable(msgspec.Struct, frozen=True):
    """219: keys and values of one namespace."""

    table: Mapping[str, str]


class _QueueDatas(msgspec.Struct, frozen=True):
    queue_datas: list[QueueData] | None = None


def read_queue_datas(dialect: Dialect, body: bytes) -> list[QueueData]:
    """The queues in a TopicRouteData body; 217 uses no other member. Raises BadRequestError."""
    route = dialect.read(_QueueDatas, body, what="TopicRouteData", max_bytes=MAX_QUEUE_DATAS_BYTES)
    return route.queue_datas or []


def read_route(body: bytes) -> TopicRouteData:
    """A route in JSON, from a server of any version. Raises RemoteProtocolError."""
    # RocketMQ misspelt this name before 4.9.0.
    return JSON.read_response(TopicRouteData, body.replace(b'"topicSynFlag":', b'"topicSysFlag":'))
