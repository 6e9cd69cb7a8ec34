"""Prometheus metrics of the server.

Base units, and labels of few values only: no topic, no address, no name that a peer chooses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from platform import python_version
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from namesrv import version
from namesrv.context import Namesrv
from namesrv.counters import REASONS
from namesrv.fast_lane import FastLane
from namesrv.histogram import Histogram
from namesrv.observability.survey import PROTOCOLS, Survey
from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_runtime.log import lines_lost

T = TypeVar("T")
# label values -> what is counted under them
Values = Iterable[tuple[Sequence[str], T]]

PREFIX: Final = "nameserver_"
# why a connection was ended for a limit of ours, why for reading too slowly; all other reasons are what a peer sent
LIMIT_REASONS: Final = ("connections", "connections_per_ip", "idle", "memory", "silent")
SLOW_READER: Final = "slow_reader"


def server_families(namesrv: Namesrv, _: Survey) -> Iterator[Metric]:
    """What it is and how it is."""
    yield _gauge(
        "build_info", "Version of the server, and of Python.", [((version(), python_version()), 1)], "version,python"
    )
    is_ready = namesrv.is_ready() and namesrv.is_listening and not namesrv.is_draining
    yield _single(
        "ready",
        "Whether the server answers route questions: it listens, its brokers are back, and it is not draining.",
        is_ready,
    )
    yield _single(
        "ready_without_brokers",
        "Whether it is ready although no broker is registered and there were some before the start.",
        namesrv.is_ready_without_brokers(),
    )
    yield _single("watchers", "Requests that wait for a route to change.", len(namesrv.watchers))
    counters, now = namesrv.counters, namesrv.clock.monotonic()
    current_at = namesrv.started_monotonic if counters.snapshot_current_at is None else counters.snapshot_current_at
    yield _single(
        "snapshot_age_seconds",
        "Time since the snapshot of expected brokers on disk was last known to be current.",
        max(0.0, now - current_at),
    )
    yield _single("snapshot_bytes", "Size of the snapshot of expected brokers.", counters.snapshot_bytes)


def table_families(namesrv: Namesrv, found: Survey) -> Iterator[Metric]:
    """What the tables hold."""
    tables = namesrv.manager.tables
    brokers = [((state,), count) for state, count in found.brokers.items()]
    yield _gauge("brokers", "Registered brokers; a suspect one has missed a heartbeat.", brokers, "state")
    yield _single("topics", "Topics with a route.", len(tables.topic_queue_table))
    yield _single("queues", "Queues of all topics on all brokers.", tables.queue_count)
    yield _single("table_revision", "Route changes since the start.", namesrv.manager.revisions.revision)


def life_families(namesrv: Namesrv, _: Survey) -> Iterator[Metric]:
    """How brokers live and end."""
    counters, heartbeats = namesrv.counters, namesrv.manager.heartbeats
    signs = [(("heartbeat",), heartbeats), (("registration",), counters.renewals.count)]
    yield _counter("heartbeats", "Heartbeats of registered brokers, by kind of request.", signs, "kind")
    yield _histogram(
        "heartbeat_lateness_seconds",
        "How much later than 30 s after the previous one a heartbeat came.",
        [((), counters.lateness(heartbeats))],
    )
    staleness = [((reason,), counters.staleness[reason]) for reason in REASONS]
    yield _histogram(
        "route_staleness_seconds",
        "Time from a broker's last heartbeat to its removal from the routes.",
        staleness,
        "reason",
    )
    evictions = [(labels, histogram.count) for labels, histogram in staleness]
    yield _counter("evictions", "Brokers that left the routes.", evictions, "reason")
    yield _counter(
        "stale_unregister_fenced",
        "Late removals that found a newer registration and left it alone.",
        [((reason,), counters.fenced[reason]) for reason in REASONS],
        "reason",
    )


def heartbeat_log_families(namesrv: Namesrv, _: Survey) -> Iterator[Metric]:
    """What became of the log, and of the heartbeat log if there is one."""
    yield _counter(
        "log_lines_lost", "Log lines lost because standard error was not read in time.", [((), lines_lost())]
    )
    log = namesrv.heartbeat_log
    if log is not None:
        yield _single("eventlog_queue", "Heartbeat log lines that wait to be written.", log.queued)
        lost = [((), log.dropped)]
        yield _counter("eventlog_dropped", "Heartbeat log lines that were lost.", lost)


def connection_families(namesrv: Namesrv, found: Survey) -> Iterator[Metric]:
    """Who is connected, and who was sent away."""
    yield _gauge(
        "connections",
        "Open connections, by protocol and role of the peer.",
        found.connections.items(),
        "proto,role",
    )
    moved = [(("in",), found.bytes_received), (("out",), found.bytes_sent)]
    yield _counter("bytes", "Bytes of requests read, and of answers written.", moved, "dir")
    refusals = namesrv.counters.refusals
    by_reason = namesrv.counters.refusals_by_reason()
    rejected = [((reason,), by_reason.get(reason, 0)) for reason in LIMIT_REASONS]
    yield _counter("connections_rejected", "Connections refused or closed because of a limit.", rejected, "reason")
    errors = [
        ((PROTOCOLS.get(serialize_type, "none"), reason), count)
        for (serialize_type, reason), count in refusals.items()
        if reason not in LIMIT_REASONS and reason != SLOW_READER
    ]
    yield _counter(
        "frame_errors", "Connections closed because of an invalid or incomplete frame.", errors, "proto,reason"
    )
    slow = [((), by_reason.get(SLOW_READER, 0))]
    yield _counter("slow_consumers", "Connections closed because the peer did not read its answers.", slow)


def request_families(namesrv: Namesrv, found: Survey) -> Iterator[Metric]:
    """What was asked, and how long answers took."""
    yield _counter(
        "requests",
        "Answered requests, by request code and response code in RocketMQ's names.",
        _requests(namesrv.fast_lane, found.answered).items(),
        "code,result",
    )
    yield _histogram(
        "request_seconds",
        "Time from reading a request to its answer, except for route questions, heartbeats and version queries that "
        "are answered at once from memory.",
        [((kind,), histogram) for kind, histogram in namesrv.counters.requests.items()],
        "class",
    )
    http = [((path, str(status)), count) for (path, status), count in namesrv.counters.http.items()]
    yield _counter("http_requests", "Requests to this port.", http, "path,status")


def loop_families(namesrv: Namesrv, _: Survey) -> Iterator[Metric]:
    """What makes answers wait."""
    yield _histogram(
        "eventloop_lag_seconds",
        "Lag of the event loop, measured ten times a second.",
        [((), namesrv.counters.lag)],
    )
    waits = namesrv.manager.lock.waits
    yield _histogram(
        "lock_wait_seconds",
        "Waits for the lock of the tables; immediate acquisitions are not counted.",
        [(("write" if to_write else "read",), histogram) for to_write, histogram in waits.items()],
        "mode",
    )
    yield _histogram(
        "scan_seconds",
        "Duration of scans for silent brokers, evictions included.",
        [((), namesrv.counters.scans)],
    )


FAMILIES: Final[tuple[Callable[[Namesrv, Survey], Iterator[Metric]], ...]] = (
    server_families,
    table_families,
    life_families,
    heartbeat_log_families,
    connection_families,
    request_families,
    loop_families,
)


def _requests(lane: FastLane, answered: Mapping[tuple[int, int], int]) -> dict[tuple[str, ...], int]:
    counts = dict(answered)
    in_lane = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: lane.pulls,
        RequestCode.BROKER_HEARTBEAT: lane.heartbeats - lane.data_versions,
        RequestCode.QUERY_DATA_VERSION: lane.data_versions,
    }
    for code, count in in_lane.items():
        key = (int(code), int(ResponseCode.SUCCESS))
        counts[key] = counts.get(key, 0) + count
    # codes that no handler knows are counted together, under -1
    return {
        (_REQUESTS.get(code, "UNKNOWN"), _RESULTS.get(result, str(result))): count
        for (code, result), count in counts.items()
    }


_REQUESTS: Final = {int(code): code.name for code in RequestCode}
_RESULTS: Final = {int(code): code.name for code in ResponseCode}


def _single(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, documentation, value)


def _gauge(name: str, documentation: str, values: Values[float], labels: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, documentation, labels=labels.split(","))
    for of, value in values:
        family.add_metric(of, value)
    return family


def _counter(name: str, documentation: str, values: Values[int], labels: str = "") -> Metric:
    family = CounterMetricFamily(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, value in values:
        family.add_metric(of, value)
    return family


def _histogram(name: str, documentation: str, values: Values[Histogram], labels: str = "") -> Metric:
    family = HistogramMetricFamily(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, histogram in values:
        family.add_metric(of, _cumulative(histogram), histogram.sum)
    return family


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        # the library's own spelling of floats, which has no types
        bucket: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
        buckets.append((bucket, below))
    return buckets
