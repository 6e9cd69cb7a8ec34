"""The settings that are limits, in the terms of what enforces them."""

from namesrv.kv.store import KVLimits
from namesrv.routeinfo.limits import TableLimits
from namesrv.settings.model import Settings
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_runtime.line_files import Retention


def server_limits(settings: Settings) -> ServerLimits:
    """Those of connections and frames."""
    return ServerLimits(
        max_frame_bytes=settings.max_frame_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_connections=settings.max_connections,
        reserved_connections=min(settings.reserved_broker_connections, settings.max_connections // 10),
        max_connections_per_ip=settings.max_connections_per_ip,
        max_in_flight=settings.max_in_flight_per_connection,
        write_buffer_bytes=settings.write_buffer_bytes,
        silent_seconds=settings.silent_timeout_seconds,
        first_frame_seconds=settings.first_frame_timeout_seconds,
        whole_frame_seconds=settings.whole_frame_timeout_seconds,
        idle_seconds=settings.idle_timeout_seconds,
        tcp_user_timeout_seconds=settings.tcp_user_timeout_seconds,
        proxy_protocol=settings.proxy_protocol == "optional",
    )


def kv_limits(settings: Settings) -> KVLimits:
    """Those of the KV configuration."""
    return KVLimits(
        max_value_bytes=settings.kv_max_value_bytes,
        max_keys_per_namespace=settings.kv_max_keys_per_namespace,
        max_namespaces=settings.kv_max_namespaces,
    )


def table_limits(settings: Settings) -> TableLimits:
    """Those of the routes."""
    return TableLimits(
        max_clusters=settings.max_clusters,
        max_brokers=settings.max_brokers,
        max_topics=settings.max_topics,
        max_routes=settings.max_routes,
        max_topics_per_broker=settings.max_topics_per_broker,
        max_brokers_per_connection=settings.max_brokers_per_connection,
        max_topics_per_connection=settings.max_topics_per_connection,
    )


def retention(settings: Settings) -> Retention:
    """Those of the heartbeat log's closed files."""
    return Retention(settings.heartbeat_log_keep_days, settings.heartbeat_log_max_bytes)
