"""The rules for changes of the tables: limits, quotas and options, as the settings have them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from namesrv.routeinfo.tables.records import RouteOptions
from namesrv_remoting.errors import BadRequestError


@dataclass(slots=True)
class TableLimits:
    """Limits of the tables; settings/model.py explains each number. A route is a topic on a broker."""

    max_brokers: int
    max_topics: int
    max_routes: int
    max_topics_per_broker: int
    # The largest deployments have tens of clusters.
    max_clusters: int = 1_000
    # A group stays in every cluster that one of its brokers has named, until its last broker is gone.
    max_clusters_per_group: int = 16
    # A group has a master and a few slaves. Every change of a group, and every route on it, costs time for each member.
    max_brokers_per_group: int = 100


class LimitExceededError(BadRequestError):
    """The tables would hold too much (code 1); `reason` names the limit in a word, for counters."""

    def __init__(self, count: int, limit: int, what: str, reason: str | None = None) -> None:
        super().__init__(f"{count} {what}, limit {limit}")
        self.reason = reason or what.replace(" ", "_")


@dataclass(slots=True)
class TakeoverPolicy:
    """The setting for requests that would take a live broker's place, or remove the broker."""

    takeover: Literal["allow", "warn", "refuse"] = "allow"


@dataclass(slots=True)
class TableQuotas:
    """Limits for the brokers of one cluster or account; 0 means no limit. A topic counts once for each broker."""

    mode: Literal["off", "observe", "enforce"] = "off"
    brokers: int = 0
    topics: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything besides the tables that decides about a change: the settings, the open connections, and the time.

    The settings may change while the server runs.
    """

    options: RouteOptions
    limits: TableLimits
    quotas: TableQuotas
    policy: TakeoverPolicy
    # True for the id of an open connection.
    is_connected: Callable[[int], bool]
    # Returns the peer address of an open connection as limits count it, "" for a closed connection.
    network_of: Callable[[int], str]
    # Returns the liveness seconds.
    now: Callable[[], float]
