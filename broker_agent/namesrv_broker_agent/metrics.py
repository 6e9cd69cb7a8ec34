"""The metrics of a broker agent, for Prometheus' library or OpenTelemetry, whichever the application has."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.status import AgentStatus
from namesrv_broker_agent.sync import SyncBrokerAgent
from namesrv_runtime.metrics import Metric, MetricTable

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry


def _of_each(field: str) -> Callable[[AgentStatus], Mapping[str, Any]]:
    read = attrgetter(field)
    return lambda status: {server.address: read(server) for server in status.servers}


TABLE: Final[MetricTable[AgentStatus]] = MetricTable(
    "namesrv_agent",
    "broker",
    (
        Metric("ready", "gauge", "Whether the broker is registered with all servers.", attrgetter("is_ready")),
        Metric(
            "registered",
            "gauge",
            "Whether the broker is registered with the server over the current connection.",
            lambda status: {server.address: server.status == "registered" for server in status.servers},
            ("server",),
        ),
        Metric("settled", "gauge", "Whether the server has accepted all topics.", _of_each("is_settled"), ("server",)),
        Metric(
            "heartbeat_lateness",
            "gauge",
            "By how much the last accepted heartbeat or registration is older than heartbeat_seconds.",
            _of_each("lateness_seconds"),
            ("server",),
            "seconds",
        ),
        Metric("heartbeats", "counter", "Heartbeats that were accepted.", _of_each("counts.heartbeats"), ("server",)),
        Metric(
            "registrations",
            "counter",
            "Registrations that were accepted.",
            _of_each("counts.registrations"),
            ("server",),
        ),
        Metric(
            "refusals",
            "counter",
            "Heartbeats and registrations that were refused.",
            _of_each("counts.refusals"),
            ("server",),
        ),
        Metric(
            "failures",
            "counter",
            "Attempts to connect or register that failed, and connections that ended.",
            _of_each("counts.failures"),
            ("server",),
        ),
        Metric(
            "reconnects",
            "counter",
            "Connections with an accepted registration, after the first one.",
            _of_each("counts.reconnects"),
            ("server",),
        ),
        Metric(
            "servers_unreadable",
            "gauge",
            "Whether the list of NameServers could not be read the last time; the one before stays in use.",
            lambda status: status.name_servers_error is not None,
        ),
        Metric("topics", "gauge", "Topics of the broker.", attrgetter("topics")),
    ),
)


def export_prometheus(
    agent: BrokerAgent | SyncBrokerAgent, registry: "CollectorRegistry | None" = None, *, name: str | None = None
) -> Callable[[], None]:
    """Export the agent's metrics to a registry (None: the default registry of prometheus_client).

    The returned function ends the export. `name` is the value of the label `broker`, by default the broker's name; no
    two agents of a process may have the same. Raises ValueError for a name in use, ImportError without the library.
    """
    return TABLE.to_prometheus(name or agent.settings.broker_name, agent.status, registry)


def export_opentelemetry(
    agent: BrokerAgent | SyncBrokerAgent, meter: "Meter | None" = None, *, name: str | None = None
) -> Callable[[], None]:
    """As `export_prometheus`, to a meter of OpenTelemetry (None: one of the global provider)."""
    return TABLE.to_opentelemetry(name or agent.settings.broker_name, agent.status, meter)
