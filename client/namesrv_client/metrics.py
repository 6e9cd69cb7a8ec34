"""The metrics of a route client, for Prometheus' library or OpenTelemetry, whichever the application has."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from namesrv_client.client import RouteClient
from namesrv_client.routes.status import ClientStatus
from namesrv_client.sync import SyncRouteClient
from namesrv_runtime.metrics import Metric, MetricTable

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

# the label value of an application's only client
DEFAULT_NAME: Final = "default"

TABLE: Final[MetricTable[ClientStatus]] = MetricTable(
    "namesrv_client",
    "client",
    (
        Metric(
            "ready",
            "gauge",
            "Whether a server answered the last route request.",
            lambda status: status.is_ready,
        ),
        Metric(
            "connected",
            "gauge",
            "Whether the current connection has had a response of the server.",
            lambda status: {server.address: server.state == "connected" for server in status.servers},
            ("server",),
        ),
        Metric(
            "reconnects",
            "counter",
            "Connections after the first one.",
            lambda status: {server.address: server.reconnects for server in status.servers},
            ("server",),
        ),
        Metric(
            "pulls",
            "counter",
            "Route requests, each for any number of topics, by result.",
            lambda status: {
                (server.address, result): count for server in status.servers for result, count in server.pulls.items()
            },
            ("server", "result"),
        ),
        Metric(
            "unanswered",
            "counter",
            "Route requests that no server answered, or that were only refused.",
            lambda status: status.unanswered,
        ),
        Metric(
            "failovers",
            "counter",
            "Times that another server answered because the chosen one failed or was silent.",
            lambda status: status.failovers,
        ),
        Metric(
            "servers_unreadable",
            "gauge",
            "Whether the list of NameServers could not be read the last time; the one before stays in use.",
            lambda status: status.name_servers_error is not None,
        ),
        Metric(
            "routes",
            "gauge",
            "Known routes, by source.",
            lambda status: {
                "pull": 0,
                "watch": 0,
                "disk": 0,
                **Counter(route.source for route in status.routes if route.absent_seconds is None),
            },
            ("source",),
        ),
        Metric(
            "routes_absent",
            "gauge",
            "Routes that are still served although a server reports that the topic does not exist any more.",
            lambda status: sum(route.absent_seconds is not None for route in status.routes),
        ),
        Metric(
            "oldest_route_age",
            "gauge",
            "Age of the oldest route in use: the time since a server last confirmed it.",
            lambda status: max((route.age_seconds for route in status.routes if route.is_in_use), default=0.0),
            unit="seconds",
        ),
        Metric(
            "route_changes",
            "counter",
            "Changes of routes.",
            lambda status: status.changes,
        ),
        Metric(
            "watches",
            "gauge",
            "Watches that a server holds until a topic changes.",
            lambda status: len(status.watches),
        ),
    ),
)


def export_prometheus(
    client: RouteClient | SyncRouteClient, registry: "CollectorRegistry | None" = None, *, name: str = DEFAULT_NAME
) -> Callable[[], None]:
    """Export the client's metrics to a registry (None: the default registry of prometheus_client).

    The returned function ends the export. `name` is the value of the label `client`; no two clients of a process may
    have the same. Raises ValueError for a name in use, ImportError without the library.
    """
    return TABLE.to_prometheus(name, client.status, registry)


def export_opentelemetry(
    client: RouteClient | SyncRouteClient, meter: "Meter | None" = None, *, name: str = DEFAULT_NAME
) -> Callable[[], None]:
    """As `export_prometheus`, to a meter of OpenTelemetry (None: one of the global provider)."""
    return TABLE.to_opentelemetry(name, client.status, meter)
