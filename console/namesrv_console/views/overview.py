"""The overview: the number of comparable servers, and the last events."""

from collections.abc import Callable
from typing import Final

from namesrv_console.state import Cluster, ServerView
from namesrv_console.views.events import Happening, happenings
from namesrv_remoting.bodies.extensions import Event

_SHOWN_EVENTS: Final = 30


def compared(cluster: Cluster) -> int:
    """Number of servers that can be compared."""
    return sum(map(is_compared, cluster.servers))


def is_compared(view: ServerView) -> bool:
    """True if a server reports its brokers and topics now, so that they can be compared with those of others."""
    return view.reports_topics and view.reports_brokers


def last_events(
    cluster: Cluster, moment_ms: Callable[[float], int], most: int = _SHOWN_EVENTS
) -> list[Happening[Event]]:
    """The last events of all servers on the console's clock, newest first, equal ones merged."""
    found = [(view, event) for view in cluster.servers for event in view.events_on_console_clock(moment_ms)[-most:]]
    found.sort(key=lambda it: (it[1].ts_ms or 0, it[1].seq), reverse=True)
    return happenings(found)[:most]
