"""The overview: the number of comparable servers, the brokers last seen longest ago, the last events."""

from typing import Final

from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_remoting.bodies.extensions import Event

_SHOWN_BROKERS: Final = 20
_SHOWN_EVENTS: Final = 30


def compared(cluster: Cluster) -> int:
    """Number of servers that are reachable and refuse no request."""
    return sum(bool(view.is_reachable) and not view.refused for view in cluster.servers)


def oldest_brokers(cluster: Cluster) -> list[tuple[ServerView, BrokerKey, BrokerSeen]]:
    """The brokers with the oldest heartbeat on each reachable server."""
    found = [
        (view, key, seen)
        for view in cluster.servers
        if view.is_reachable
        for key, seen in view.brokers.items()
        if seen.last_seen_at is not None
    ]
    found.sort(key=lambda it: (it[2].last_seen_at or 0.0, it[1], it[0].address))
    return found[:_SHOWN_BROKERS]


def last_events(cluster: Cluster, most: int = _SHOWN_EVENTS) -> list[tuple[ServerView, Event]]:
    """The last events of all servers, newest first."""
    found = [(view, event) for view in cluster.servers for event in view.events[-most:]]
    found.sort(key=lambda it: (it[1].ts_ms or 0, it[1].seq), reverse=True)
    return found[:most]
