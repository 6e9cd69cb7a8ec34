"""Decoding of routes and of answers about them, in JSON and natively."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from namesrv_remoting.bodies.base import read_json, read_msgpack
from namesrv_remoting.bodies.extensions import from_msgpack
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import JsonTopicQueueMappingInfo, TopicQueueMappingInfo
from namesrv_remoting.errors import RemoteProtocolError, ResponseError


class _JsonBrokerData(msgspec.Struct, rename="camel"):
    broker_name: str
    broker_addrs: dict[int, str] | None = None
    cluster: str | None = None
    zone_name: str | None = None
    enable_acting_master: bool = False


class _JsonQueueData(msgspec.Struct, rename="camel"):
    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0
    # how it was spelt before 4.9.0
    topic_syn_flag: int = 0


class _JsonRoute(msgspec.Struct, rename="camel"):
    broker_datas: list[_JsonBrokerData] | None = None
    queue_datas: list[_JsonQueueData] | None = None
    filter_server_table: dict[str, list[str]] | None = None
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, JsonTopicQueueMappingInfo] | None = None


_json_decoder: Final = msgspec.json.Decoder(_JsonRoute)


class PulledRoutes(msgspec.Struct):
    """The answer to PULL_ROUTES; a route is None where the topic positively does not exist."""

    boot_id: str
    revision: int
    ready: bool
    full: bool
    routes: dict[str, TopicRouteData | None]


class _RawRoutes(msgspec.Struct):
    boot_id: str
    revision: int
    ready: bool
    full: bool
    routes: dict[str, msgspec.Raw]


class ServerInfo(msgspec.Struct):
    """What a client wants to know of a server: which run it is, and how long it has lasted."""

    boot_id: str
    uptime_seconds: float = 0.0


_raw_decoder: Final = msgspec.msgpack.Decoder(_RawRoutes)
_route_decoder: Final = msgspec.msgpack.Decoder(TopicRouteData | None)
_info_decoder: Final = msgspec.msgpack.Decoder(ServerInfo)


def route_from_json(body: bytes) -> TopicRouteData:
    """A TopicRouteData body in any dialect that a NameServer writes.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        found = read_json(_json_decoder, body, "TopicRouteData")
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error
    return TopicRouteData(
        [
            BrokerData(
                data.cluster or "", data.broker_name, data.broker_addrs or {}, data.zone_name, data.enable_acting_master
            )
            for data in found.broker_datas or ()
        ],
        [
            QueueData(
                queue.broker_name,
                queue.read_queue_nums,
                queue.write_queue_nums,
                queue.perm,
                queue.topic_sys_flag or queue.topic_syn_flag,
            )
            for queue in found.queue_datas or ()
        ],
        found.filter_server_table or {},
        found.order_topic_conf,
        None
        if not found.topic_queue_mapping_by_broker
        else {
            name: TopicQueueMappingInfo(*msgspec.structs.astuple(info))
            for name, info in found.topic_queue_mapping_by_broker.items()
        },
    )


def pulled_routes(body: bytes) -> PulledRoutes:
    """The answer to PULL_ROUTES. Routes that are spelt the same, as most of a cluster's are, become one object.

    Raises:
        RemoteProtocolError: it is none.
    """
    # by their bytes: a route does not say of which topic it is
    seen: dict[bytes, TopicRouteData | None] = {}
    try:
        raw = read_msgpack(_raw_decoder, body, "PULL_ROUTES")
        routes = {}
        for topic, spelt in raw.routes.items():
            data = bytes(spelt)
            if data not in seen:
                seen[data] = read_msgpack(_route_decoder, data, f"the route of {topic}")
            routes[topic] = seen[data]
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error
    return PulledRoutes(raw.boot_id, raw.revision, raw.ready, raw.full, routes)


def server_info(body: bytes) -> ServerInfo:
    """The answer to SERVER_INFO.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        return read_msgpack(_info_decoder, body, "SERVER_INFO")
    except ResponseError as error:
        raise RemoteProtocolError(str(error)) from error


def members(body: bytes) -> Mapping[str, Any]:
    """A native answer that is a map.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        found = from_msgpack(body)
    except ValueError as error:
        raise RemoteProtocolError(f"answer is not msgpack: {error}") from error
    if not isinstance(found, dict):
        raise RemoteProtocolError(f"answer is a {type(found).__name__}, not a map")
    return found
