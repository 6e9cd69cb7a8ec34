"""The settings that are limits, as values for the objects that enforce them."""

from dataclasses import dataclass, fields
from typing import Final, Literal

from namesrv.kv import KVLimits
from namesrv.net.limits import ServerLimits
from namesrv.routeinfo.rules import TableLimits, TableQuotas, TakeoverPolicy
from namesrv.settings.model import Settings
from namesrv_runtime.line_log.files import Retention

# The share in percent that means no limit per address.
_EVERYTHING: Final = 100
# Topics of one broker, unless a tenth of `max_topics` is more. RocketMQ's largest frame, 16 MiB, holds 77,000.
_TOPICS_PER_BROKER: Final = 100_000
# Files of both halves of the audit trail, about five million changes once they are compressed: an operator who needs a
# longer trail sends the lines elsewhere.
_AUDIT_MAX_BYTES: Final = 256 * 1024 * 1024
# HTTP connections of the port `name-servers-listen`, each with an open file.
NAME_SERVERS_CONNECTIONS: Final = 256


@dataclass(slots=True)
class RequestQuotas:
    """Quotas on requests per second, and their mode."""

    mode: Literal["off", "observe", "enforce"]
    all_per_second: int
    ip_per_second: int


@dataclass(slots=True, frozen=True)
class Limits:
    """All limits of a server: the same objects are used from the construction to the end of the server."""

    # Connections and frames.
    server: ServerLimits
    # Route tables.
    tables: TableLimits
    takeover: TakeoverPolicy
    # Key-value configuration.
    kv: KVLimits
    # Closed files of the heartbeat log.
    retention: Retention
    # Requests, and the brokers and topics of clusters and accounts.
    requests: RequestQuotas
    quotas: TableQuotas
    # Each half of the audit trail: operators' changes with refusals, and brokers' changes.
    audit_retention: Retention

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        """Return the limits of the settings."""
        return cls(
            ServerLimits(
                max_connections=settings.max_connections,
                reserved_connections=settings.max_connections // 10,
                # With 100 percent, an address has no limit of its own: its connections are refused, or closed to make
                # room, like those of all other addresses.
                max_connections_per_ip=(
                    0 if settings.share_per_ip_percent == _EVERYTHING else _share(settings.max_connections, settings)
                ),
                client_max_age_seconds=settings.client_connection_max_age,
                proxy_protocol=settings.proxy_protocol == "optional",
            ),
            TableLimits(
                max_brokers=settings.max_brokers,
                max_topics=settings.max_topics,
                # The number of routes is limited, too: it bounds the memory of many brokers with the same topics.
                max_routes=4 * settings.max_topics,
                max_topics_per_broker=max(_TOPICS_PER_BROKER, settings.max_topics // 10),
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
            Retention(settings.audit_log_keep_days, _AUDIT_MAX_BYTES // 2),
        )

    def follow(self, settings: Settings) -> None:
        """Apply other settings to these limits in place, so that all holders see them."""
        wanted = Limits.of(settings)
        for member in fields(self):
            mine, new = getattr(self, member.name), getattr(wanted, member.name)
            for limit in fields(new):
                setattr(mine, limit.name, getattr(new, limit.name))


def _share(total: int, settings: Settings) -> int:
    """Return the share of a total that one address may have: at least one."""
    return max(1, int(total * settings.share_per_ip_percent / _EVERYTHING))
