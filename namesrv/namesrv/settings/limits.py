"""The settings that are limits, in the terms of what enforces them."""

from dataclasses import dataclass, fields
from typing import Final, Literal

from namesrv.kv import KVLimits
from namesrv.net.limits import ServerLimits
from namesrv.routeinfo.admission import TableLimits, TableQuotas, TakeoverPolicy
from namesrv.settings.model import Settings
from namesrv_runtime.line_files import Retention

# percent
_EVERYTHING: Final = 100


@dataclass(slots=True)
class RequestQuotas:
    """Requests a second, and what becomes of more."""

    mode: Literal["off", "observe", "enforce"]
    all_per_second: int
    ip_per_second: int


@dataclass(slots=True, frozen=True)
class Limits:
    """All of them: handed over when a server is built, and the same objects as long as it runs."""

    # connections and frames
    server: ServerLimits
    # the routes
    tables: TableLimits
    takeover: TakeoverPolicy
    # the KV configuration
    kv: KVLimits
    # the heartbeat log's closed files
    retention: Retention
    # requests, and what clusters and accounts may hold
    requests: RequestQuotas
    quotas: TableQuotas
    # of each half of the audit trail: what operators changed and what was refused, and what brokers changed
    audit_retention: Retention

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """As the settings say."""
        return cls(
            ServerLimits(
                max_frame_bytes=settings.max_frame_bytes,
                max_connections=settings.max_connections,
                reserved_connections=settings.max_connections // 10,
                # one address that may have all of them is refused, or makes room, like all others
                max_connections_per_ip=(
                    0 if settings.share_per_ip_percent == _EVERYTHING else _share(settings.max_connections, settings)
                ),
                first_frame_seconds=settings.whole_frame_timeout_seconds / 3,
                whole_frame_seconds=settings.whole_frame_timeout_seconds,
                idle_seconds=settings.idle_timeout_seconds,
                tls_handshake_seconds=settings.whole_frame_timeout_seconds / 6,
                proxy_protocol=settings.proxy_protocol == "optional",
            ),
            TableLimits(
                max_brokers=settings.max_brokers,
                max_topics=settings.max_topics,
                # the memory of many brokers with the same topics is bounded, too
                max_routes=4 * settings.max_topics,
                max_topics_per_broker=settings.max_topics_per_broker,
            ),
            TakeoverPolicy(settings.takeover),
            KVLimits(),
            Retention(settings.heartbeat_log_keep_days, settings.heartbeat_log_max_bytes),
            RequestQuotas(
                settings.quotas,
                settings.quota_requests_per_second,
                _share(settings.quota_requests_per_second, settings),
            ),
            TableQuotas(
                settings.quotas,
                settings.quota_brokers,
                settings.quota_topics,
            ),
            Retention(settings.audit_log_keep_days, settings.audit_log_max_bytes // 2),
        )

    def follow(self, settings: Settings) -> None:
        """Take the values of other settings, wherever these limits are held."""
        wanted = Limits.of(settings)
        for member in fields(self):
            mine, new = getattr(self, member.name), getattr(wanted, member.name)
            for limit in fields(new):
                setattr(mine, limit.name, getattr(new, limit.name))


def _share(total: int, settings: Settings) -> int:
    """What one address may have of a total: at least one."""
    return max(1, int(total * settings.share_per_ip_percent / _EVERYTHING))
