"""Prometheus metrics of the server, rendered without ever delaying a pull.

Base units, and labels of few values only: no topic, no address, no name that a peer chooses. A family at a time, with
the loop running in between: the numbers of one scrape are not all of one moment.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from platform import python_version
from typing import Any, Final, Self, TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from namesrv import version
from namesrv.context import Namesrv
from namesrv.counters import REASONS
from namesrv.histogram import Histogram
from namesrv.routeinfo.records import HEARTBEAT_SECONDS
from namesrv_remoting.aio.server import RemotingServer
from namesrv_remoting.aio.steps import in_parts
from namesrv_remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_runtime.log import lines_lost

T = TypeVar("T")
# a single value, or those by label value or tuple of them
Values: TypeAlias = T | Mapping[Any, T]

# what every version of Prometheus reads
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PREFIX: Final = "nameserver_"
# why a connection was ended for a limit of ours, why for reading too slowly; all other reasons are what a peer sent
LIMIT_REASONS: Final = ("connections", "connections_per_ip", "idle", "memory", "silent")
SLOW_READER: Final = "slow_reader"
_PROTOCOLS: Final = {
    int(SerializeType.JSON): "json",
    int(SerializeType.ROCKETMQ): "rocketmq",
    int(SerializeType.MSGPACK): "msgpack",
    # nothing was received that could be read
    -1: "none",
}
# codes that no handler knows are counted together, under -1
_REQUESTS: Final = {int(code): code.name for code in RequestCode}
_RESULTS: Final = {int(code): code.name for code in ResponseCode}
# entries counted between two looks at the sockets: a tenth to a fifth of a millisecond
_CHUNK: Final = 500
# A broker that is silent for so long, or for three quarters of its expiry if that is less, has missed a heartbeat.
_SUSPECT_SECONDS: Final = 1.5 * HEARTBEAT_SECONDS
_SUSPECT_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Survey:
    """What is shown, with the counts of what can be many."""

    namesrv: Namesrv
    server: RemotingServer
    # (protocol, role) -> connections
    connections: Counter[tuple[str, ...]]
    # live or suspect -> brokers
    brokers: Counter[str]

    @classmethod
    async def of(cls, namesrv: Namesrv, server: RemotingServer) -> Self:
        """Look at everything, in chunks with the loop running in between, so that no pull waits for a large server.

        What comes and goes meanwhile is counted or not; nothing is counted twice.
        """
        # a server without any has a number, too
        connections: Counter[tuple[str, ...]] = Counter({("none", "none"): 0})
        async for part in in_parts(list(namesrv.connections.values()), _CHUNK):
            connections.update((_PROTOCOLS.get(each.serialize_type, "none"), each.role or "none") for each in part)
        brokers: Counter[str] = Counter({"live": 0, "suspect": 0})
        now = namesrv.manager.now()
        async for entries in in_parts(list(namesrv.manager.tables.broker_live_table.values()), _CHUNK):
            for live in entries:
                is_suspect = now - live.last_update > min(_SUSPECT_SECONDS, _SUSPECT_SHARE * live.expiry_seconds)
                brokers["suspect" if is_suspect else "live"] += 1
        return cls(namesrv, server, connections, brokers)


class _One:
    """A collector of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """That one."""
        return (self._family,)


async def exposition(namesrv: Namesrv, server: RemotingServer) -> bytes:
    """All metrics in Prometheus' text format; those of the process under the names that every client library uses."""
    survey = await Survey.of(namesrv, server)
    parts = []
    for family in chain(_state_families(survey), _life_families(survey), _traffic_families(survey)):
        parts.append(generate_latest(_One(family)))
        await asyncio.sleep(0)
    # in a thread, since it lists all open files: with ten thousand connections that takes milliseconds
    parts.append(await asyncio.to_thread(lambda: generate_latest(ProcessCollector(registry=None))))
    return b"".join(parts)


def _state_families(survey: Survey) -> Iterator[Metric]:
    """What the server is, how it is, and what its tables hold."""
    namesrv, counters, tables = survey.namesrv, survey.namesrv.counters, survey.namesrv.manager.tables
    versions = {(version(), python_version()): 1}
    yield _gauge("build_info", "Version of the server, and of Python.", versions, "version,python")
    yield _gauge(
        "ready",
        "Whether the server answers route questions: it listens, its brokers are back, and it is not draining.",
        namesrv.is_ready() and namesrv.is_listening and not namesrv.is_draining,
    )
    yield _gauge(
        "ready_without_brokers",
        "Whether it is ready although no broker is registered and there were some before the start.",
        namesrv.is_ready_without_brokers(),
    )
    yield _gauge("watchers", "Requests that wait for a route to change.", len(namesrv.watchers))
    current_at = namesrv.started_monotonic if counters.snapshot_current_at is None else counters.snapshot_current_at
    yield _gauge(
        "snapshot_age_seconds",
        "Time since the snapshot of expected brokers on disk was last known to be current.",
        max(0.0, namesrv.clock.monotonic() - current_at),
    )
    yield _gauge("snapshot_bytes", "Size of the snapshot of expected brokers.", counters.snapshot_bytes)
    yield _gauge("brokers", "Registered brokers; a suspect one has missed a heartbeat.", survey.brokers, "state")
    yield _gauge("topics", "Topics with a route.", len(tables.topic_queue_table))
    yield _gauge("queues", "Queues of all topics on all brokers.", tables.queue_count)
    yield _gauge("table_bytes", "Estimated memory of the tables, part of max-memory-bytes.", tables.estimated_bytes())
    yield _gauge("table_revision", "Route changes since the start.", namesrv.manager.revisions.revision)


def _life_families(survey: Survey) -> Iterator[Metric]:
    """How brokers live and end, what becomes of the logs, and what makes answers wait."""
    namesrv, counters, heartbeats = survey.namesrv, survey.namesrv.counters, survey.namesrv.manager.heartbeats
    signs = {"heartbeat": heartbeats, "registration": counters.renewals.count}
    yield _counter("heartbeats", "Heartbeats of registered brokers, by kind of request.", signs, "kind")
    yield _histogram(
        "heartbeat_lateness_seconds",
        "How much later than 30 s after the previous one a heartbeat came.",
        counters.lateness(heartbeats),
    )
    yield _histogram(
        "route_staleness_seconds",
        "Time from a broker's last heartbeat to its removal from the routes.",
        counters.staleness,
        "reason",
    )
    evictions = {reason: counters.staleness[reason].count for reason in REASONS}
    yield _counter("evictions", "Brokers that left the routes.", evictions, "reason")
    yield _counter(
        "stale_unregister_fenced",
        "Late removals that found a newer registration and left it alone.",
        {reason: counters.fenced[reason] for reason in REASONS},
        "reason",
    )
    yield _counter("log_lines_lost", "Log lines lost because standard error was not read in time.", lines_lost())
    if (log := namesrv.heartbeat_log) is not None:
        yield _gauge("eventlog_queue", "Heartbeat log lines that wait to be written.", log.queued)
        yield _counter("eventlog_dropped", "Heartbeat log lines that were lost.", log.dropped)
    yield _histogram("eventloop_lag_seconds", "Lag of the event loop, measured ten times a second.", counters.lag)
    yield _histogram(
        "lock_wait_seconds",
        "Waits for the lock of the tables; immediate acquisitions are not counted.",
        {"write" if to_write else "read": waits for to_write, waits in namesrv.manager.lock.waits.items()},
        "mode",
    )
    yield _histogram("scan_seconds", "Duration of scans for silent brokers, evictions included.", counters.scans)


def _traffic_families(survey: Survey) -> Iterator[Metric]:
    """Who is connected, who was sent away, what was asked, and how long answers took."""
    counters, server = survey.namesrv.counters, survey.server
    yield _gauge("connections", "Open connections, by protocol and role of the peer.", survey.connections, "proto,role")
    moved = {"in": server.bytes_received, "out": server.bytes_sent}
    yield _counter("bytes", "Bytes of requests read, and of answers written.", moved, "dir")
    by_reason = counters.refusals_by_reason()
    rejected = {reason: by_reason.get(reason, 0) for reason in LIMIT_REASONS}
    yield _counter("connections_rejected", "Connections refused or closed because of a limit.", rejected, "reason")
    errors = {
        (_PROTOCOLS.get(serialize_type, "none"), reason): count
        for (serialize_type, reason), count in counters.refusals.items()
        if reason not in {*LIMIT_REASONS, SLOW_READER}
    }
    yield _counter(
        "frame_errors", "Connections closed because of an invalid or incomplete frame.", errors, "proto,reason"
    )
    slow = by_reason.get(SLOW_READER, 0)
    yield _counter("slow_consumers", "Connections closed because the peer did not read its answers.", slow)
    yield _counter(
        "requests",
        "Answered requests, by request code and response code in RocketMQ's names.",
        _requests(survey),
        "code,result",
    )
    yield _histogram(
        "request_seconds",
        "Time from reading a request to its answer, except for route questions, heartbeats and version queries that "
        "are answered at once from memory.",
        counters.requests,
        "class",
    )
    http = {(path, str(status)): count for (path, status), count in counters.http.items()}
    yield _counter("http_requests", "Requests to this port.", http, "path,status")


def _requests(survey: Survey) -> dict[tuple[str, ...], int]:
    lane = survey.namesrv.fast_lane
    counts = Counter(survey.server.dispatcher.answered)
    counts[RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SUCCESS] += lane.pulls
    counts[RequestCode.BROKER_HEARTBEAT, ResponseCode.SUCCESS] += lane.heartbeats - lane.data_versions
    counts[RequestCode.QUERY_DATA_VERSION, ResponseCode.SUCCESS] += lane.data_versions
    return {
        (_REQUESTS.get(code, "UNKNOWN"), _RESULTS.get(result, str(result))): count
        for (code, result), count in counts.items()
    }


def _gauge(name: str, documentation: str, values: Values[float], labels: str = "") -> Metric:
    family = GaugeMetricFamily(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, value in _each(values):
        family.add_metric(of, value)
    return family


def _counter(name: str, documentation: str, values: Values[int], labels: str = "") -> Metric:
    family = CounterMetricFamily(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, value in _each(values):
        family.add_metric(of, value)
    return family


def _histogram(name: str, documentation: str, values: Values[Histogram], labels: str = "") -> Metric:
    family = HistogramMetricFamily(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, histogram in _each(values):
        buckets: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            # the library's own spelling of floats, which has no types
            buckets.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
        family.add_metric(of, buckets, histogram.sum)
    return family


def _each(values: Values[T]) -> Iterable[tuple[tuple[str, ...], T]]:
    if isinstance(values, Mapping):
        return [((of,) if isinstance(of, str) else of, value) for of, value in values.items()]
    return [((), values)]
