"""Prometheus metrics of the server, rendered without delaying a pull.

Metrics use base units and labels with few values only: no topic, no address, no name that a peer chooses. Families are
rendered one at a time and the event loop runs in between, so the numbers of one scrape are from different moments.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from platform import python_version
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.utils import floatToGoString

from namesrv import version
from namesrv.context import Namesrv
from namesrv.counters import REASONS
from namesrv.fast_path import FastPath
from namesrv.histogram import Histogram
from namesrv.net.remoting_server import RemotingServer
from namesrv.observability.health import Groups, groups_by_health
from namesrv.yielding import in_chunks
from namesrv_remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_runtime.log import lines_lost
from namesrv_runtime.threads import NoThreadError, in_thread

# A single value, or values by label value or tuple of label values.
Values: TypeAlias = float | Histogram | Mapping[Any, float | Histogram]

# All versions of Prometheus read this format.
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PREFIX: Final = "nameserver_"
# Reasons for closing a connection at one of our limits, and the reason for reading too slowly; all other reasons are
# faults in received bytes.
LIMIT_REASONS: Final = ("connections", "connections_per_ip", "idle", "memory", "silent")
SLOW_READER: Final = "slow_reader"
# Names of protocols; a connection without a readable request has none of them.
_PROTOCOLS: Final = {int(each): each.name.lower() for each in SerializeType}
# Unknown request codes are counted together, under -1.
_REQUESTS: Final = {int(code): code.name for code in RequestCode}
_RESULTS: Final = {int(code): code.name for code in ResponseCode}
# Entries counted between two yields to the event loop: a tenth to a fifth of a millisecond.
_CHUNK: Final = 500


async def exposition(namesrv: Namesrv, server: RemotingServer) -> bytes:
    """Return all metrics in Prometheus' text format, with the usual names for metrics of the process."""
    families = chain(
        _state_families(namesrv, await count_brokers(namesrv), await groups_by_health(namesrv)),
        _eviction_families(namesrv),
        _traffic_families(namesrv, server, await count_connections(namesrv)),
        _tls_families(namesrv, await count_tls_connections(namesrv)),
    )
    parts = []
    for family in families:
        parts.append(generate_latest(SimpleNamespace(collect=lambda family=family: (family,))))
        await asyncio.sleep(0)
    # The collector runs in a thread, since it lists all open files: with ten thousand connections that takes
    # milliseconds.
    with suppress(NoThreadError):
        parts.append(await in_thread(lambda: generate_latest(ProcessCollector(registry=None))))
    return b"".join(parts)


async def count_connections(namesrv: Namesrv) -> Counter[tuple[str, ...]]:
    """Count connections by protocol and role, in chunks, so that no pull waits; changes meanwhile may be missed."""
    # A server without connections has a count, too.
    counts: Counter[tuple[str, ...]] = Counter({("none", "none"): 0})
    async for part in in_chunks(list(namesrv.slots.connections.values()), _CHUNK):
        counts.update((_PROTOCOLS.get(each.peer.serialize_type, "none"), each.peer.role or "none") for each in part)
    return counts


async def count_tls_connections(namesrv: Namesrv) -> int:
    """Count connections over TLS in chunks."""
    count = 0
    async for chunk in in_chunks(list(namesrv.slots.connections.values()), _CHUNK):
        count += sum(1 for each in chunk if each.peer.tls_version)
    return count


async def count_brokers(namesrv: Namesrv) -> Counter[str]:
    """Count live and suspect brokers in chunks."""
    counts: Counter[str] = Counter({"live": 0, "suspect": 0})
    now, table = namesrv.manager.now(), namesrv.manager.tables.broker_live_table
    async for part in in_chunks(list(table.values()), _CHUNK):
        for live in part:
            counts["suspect" if live.is_suspect(now) else "live"] += 1
    return counts


def _state_families(namesrv: Namesrv, brokers: Counter[str], groups: Groups) -> Iterator[Metric]:
    """Yield metrics of the server's version, state and tables."""
    counters, tables = namesrv.counters, namesrv.manager.tables
    versions = {(version(), python_version()): 1}
    yield _gauge("build_info", "Version of the server, and of Python.", versions, "version,python")
    yield _gauge(
        "ready",
        "Whether the server answers route requests: it listens, its brokers are back, and it is not draining.",
        namesrv.boot.is_serving(),
    )
    yield _gauge(
        "ready_without_brokers",
        "Whether it is ready although no broker is registered and there were some before the start.",
        namesrv.is_ready_without_brokers(),
    )
    yield _gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks()))
    yield _gauge("allocated_blocks", "Memory blocks of Python's allocator in use.", sys.getallocatedblocks())
    yield _gauge("watchers", "Requests that wait for a route to change.", len(namesrv.routes.watchers))
    current_at = counters.snapshot_current_at
    if current_at is None:
        current_at = namesrv.boot.started_monotonic
    yield _gauge(
        "snapshot_age_seconds",
        "Time since the snapshot of expected brokers on disk was last known to be current.",
        max(0.0, namesrv.clock.monotonic() - current_at),
    )
    yield _gauge("snapshot_bytes", "Size of the snapshot of expected brokers.", counters.snapshot_bytes)
    yield _gauge(
        "brokers",
        "Registered brokers; a suspect one has missed a heartbeat.",
        brokers,
        "state",
    )
    yield _gauge(
        "broker_groups",
        "Broker groups; a silent master has missed two heartbeats while a slave of it sends them.",
        {health.value: len(names) for health, names in groups.items()},
        "state",
    )
    problems = {file: state.problem() is not None for file, state in namesrv.writes().items()}
    yield _gauge("disk_failing", "Whether writing a file fails or is stuck; serving goes on.", problems, "file")
    yield _gauge(
        "write_permission_removed", "Brokers whose write permission an operator removed.", len(tables.write_removed)
    )
    yield _gauge("topics", "Topics with a route.", len(tables.topic_queue_table))
    yield _gauge("queues", "Queues of all topics on all brokers.", tables.topics.queue_count)
    yield _gauge("table_bytes", "Estimated memory of the tables, part of max-memory-bytes.", tables.estimated_bytes())
    yield _gauge(
        "memory_budget_ratio",
        "Share of max-memory-bytes that tables and peers take.",
        namesrv.memory_bytes() / namesrv.settings.current.max_memory_bytes,
    )
    yield _gauge("table_revision", "Route changes since the start.", namesrv.manager.revisions.revision)


def _eviction_families(namesrv: Namesrv) -> Iterator[Metric]:
    """Yield metrics of brokers' heartbeats and evictions, of the logs, and of delays of responses."""
    counters, heartbeats = namesrv.counters, namesrv.manager.heartbeats
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
        "Late removals that found a newer registration, or that of another agent, and left it alone.",
        {reason: counters.fenced[reason] for reason in REASONS},
        "reason",
    )
    yield _counter(
        "takeovers",
        "Attempts to take the place of a live broker, or to remove it; none are counted where takeover is allow.",
        counters.takeovers,
        "outcome",
    )
    guard = namesrv.access.guard
    accounts = 0 if guard is None else len(guard.file.accounts)
    yield _gauge("access_accounts", "Accounts of the access file in use; 0 without one.", accounts)
    yield _counter(
        "access_refusals",
        "Requests that the access file does not allow; observed ones were let through.",
        {} if guard is None else guard.refusals,
        "class,reason,outcome",
    )
    yield _gauge(
        "reload_refused",
        "Whether the last reload changed nothing because a setting or the access file was wrong.",
        counters.is_reload_refused,
    )
    yield _counter("log_lines_lost", "Log lines lost because standard error was not read in time.", lines_lost())
    if (log := namesrv.heartbeat_log) is not None:
        yield _gauge("eventlog_queue", "Heartbeat log lines that wait to be written.", log.lines.queued)
        yield _counter("eventlog_dropped", "Heartbeat log lines that were lost.", log.lines.dropped)
    exceeded = namesrv.access.limiter.exceeded
    yield _counter(
        "quota_exceeded",
        "Requests that exceed a quota or a limit of the tables; delayed ones waited, observed ones were let through.",
        {**counters.quota_exceeded, **exceeded},
        "class,reason,outcome",
    )
    if (audit := namesrv.access.audit) is not None:
        yield _gauge("audit_queue", "Lines of the audit trail that wait to be written.", audit.queued)
        yield _counter("audit_dropped", "Lines of the audit trail that were lost.", audit.dropped)
    yield _histogram("eventloop_lag_seconds", "Lag of the event loop, measured ten times a second.", counters.lag)
    yield _histogram(
        "lock_wait_seconds",
        "Waits for the lock of the tables; immediate acquisitions are not counted.",
        {"write" if to_write else "read": waits for to_write, waits in namesrv.manager.lock.waits.items()},
        "mode",
    )
    yield _histogram("scan_seconds", "Duration of scans for silent brokers, evictions included.", counters.scans)


def _traffic_families(
    namesrv: Namesrv, server: RemotingServer, connections: Counter[tuple[str, ...]]
) -> Iterator[Metric]:
    """Yield metrics of connections, refusals, requests and response times."""
    counters = namesrv.counters
    yield _gauge("connections", "Open connections, by protocol and role of the peer.", connections, "proto,role")
    moved = {"in": server.bytes_received, "out": server.bytes_sent}
    yield _counter("bytes", "Bytes of requests read, and of responses written.", moved, "dir")
    by_reason = counters.refusals_by_reason()
    rejected = {reason: by_reason.get(reason, 0) for reason in LIMIT_REASONS}
    yield _counter(
        "connections_rejected",
        "Connections refused or closed, and large frames refused, because of a limit.",
        rejected,
        "reason",
    )
    errors = {
        (_PROTOCOLS.get(serialize_type, "none"), reason): count
        for (serialize_type, reason), count in counters.refusals.items()
        if reason not in {*LIMIT_REASONS, SLOW_READER}
    }
    yield _counter(
        "frame_errors", "Connections closed because of an invalid or incomplete frame.", errors, "proto,reason"
    )
    slow = by_reason.get(SLOW_READER, 0)
    yield _counter("slow_consumers", "Connections closed because the peer did not read its responses.", slow)
    yield _counter(
        "requests",
        "Answered requests, by request code and response code in RocketMQ's names.",
        _requests(namesrv.fast_path, server.dispatcher.answered),
        "code,result",
    )
    yield _histogram(
        "request_seconds",
        "Time from the access check of a request to its response, with the wait for a quota; without route requests, "
        "heartbeats and version queries that are answered at once from memory.",
        counters.requests,
        "class",
    )
    http = {(path, str(status)): count for (path, status), count in counters.http.items()}
    what = "Requests to this port; with the status tls, TLS handshakes that failed."
    yield _counter("http_requests", what, http, "path,status")


def _tls_families(namesrv: Namesrv, connections: int) -> Iterator[Metric]:
    """Yield TLS metrics, if the server has a certificate: its remaining time, and handshakes."""
    certificates = namesrv.certificates
    days = certificates.days_left()
    if days is None:
        return
    yield _gauge(
        "tls_certificate_expiry_seconds",
        "Time until the server's certificate, or an intermediate one in its file, expires; negative when it has.",
        days * 86_400,
    )
    if crls := certificates.crl_seconds():
        yield _gauge(
            "tls_crl_expiry_seconds",
            "Time until the first of the revocation lists expires; when it has, no client certificate counts.",
            min(crl.until_expiry for crl in crls),
        )
        yield _gauge(
            "tls_crl_renewal_seconds",
            "Time until the first of the revocation lists should have been replaced: a day before it expires, or a "
            "twelfth of its lifetime if that is less; negative when it is late.",
            min(crl.until_renewal for crl in crls),
        )
    yield _gauge(
        "tls_certificate_refused",
        "Whether the certificate files as they are now cannot be used; the certificate before stays in use.",
        certificates.problem is not None,
    )
    yield _gauge("tls_connections", "Open connections over TLS, of all.", connections)
    yield _counter(
        "tls_handshakes",
        "Completed TLS handshakes, by protocol version; those that failed are frame errors with the reason tls.",
        {version: certificates.tls.handshakes[version] for version in ("TLSv1.2", "TLSv1.3")},
        "version",
    )
    yield _histogram(
        "tls_handshake_wait_seconds",
        "Time for which peers wait until a thread of this server has computed a step of their TLS handshake.",
        certificates.tls.threads.waits,
    )


def _requests(fast_path: FastPath, answered: Mapping[tuple[int, int], int]) -> dict[tuple[str, ...], int]:
    counts = Counter(answered)
    counts[RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SUCCESS] += fast_path.pulls
    counts[RequestCode.BROKER_HEARTBEAT, ResponseCode.SUCCESS] += fast_path.heartbeats - fast_path.data_versions
    counts[RequestCode.QUERY_DATA_VERSION, ResponseCode.SUCCESS] += fast_path.data_versions
    return {
        (_REQUESTS.get(code, "UNKNOWN"), _RESULTS.get(result, str(result))): count
        for (code, result), count in counts.items()
    }


def _family(kind: Callable[..., Any], name: str, documentation: str, values: Values, labels: str = "") -> Metric:
    family: Metric = kind(PREFIX + name, documentation, labels=labels.split(",") if labels else ())
    for of, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        add = family.add_metric  # type: ignore[attr-defined]  # all three kinds have the method
        of_labels = (of,) if isinstance(of, str) else of
        if isinstance(value, Histogram):
            # The library formats bounds as floats in its own way.
            bounds = map(floatToGoString, (*value.bounds, float("inf")))
            add(of_labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum)
        else:
            add(of_labels, value)
    return family


_gauge = partial(_family, GaugeMetricFamily)
_counter = partial(_family, CounterMetricFamily)
_histogram = partial(_family, HistogramMetricFamily)
