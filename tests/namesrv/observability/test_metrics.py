"""Metrics of a running server."""

import asyncio
import gc
import itertools
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import pytest

from namesrv import version
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.observability.metrics import count_brokers, count_connections, exposition
from namesrv.observability.surface import LAG_INTERVAL_SECONDS
from namesrv_runtime.line_log.queue import Item
from tests.support.fake_clock import until
from tests.support.http_peer import Scrape, ask
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, Broker, NamesrvPeer, native, registration, request_frame
from tests.support.raw_peer import RawPeer

T = TypeVar("T")

A = Broker()
B = Broker("broker-b", 0, "10.0.0.2:10911")


async def scrape(server: InProcess) -> Scrape:
    """The current metrics of the server."""
    return Scrape((await exposition(server.namesrv, server.controller.server)).decode())


def by(metrics: Scrape, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """All samples of a metric by the values of these labels."""
    return {tuple(each[label] for label in labels): metrics(name, **each) for each in metrics.labels(name)}


async def test_metrics_of_the_server_and_its_tables(server: InProcess, peer: NamesrvPeer) -> None:
    """Brokers, topics and queues follow registrations and disconnects; counters start at 0."""
    metrics = await scrape(server)
    assert [version()] == [labels["version"] for labels in metrics.labels("nameserver_build_info")]
    for name in ("connections_rejected_total", "evictions_total", "stale_unregister_fenced_total"):
        # the counter exists at 0, so that a rate shows its first increment
        assert set(by(metrics, f"nameserver_{name}", "reason").values()) == {0}
    assert len(asyncio.all_tasks()) == metrics("nameserver_tasks")
    assert metrics("nameserver_allocated_blocks") > 100_000

    await peer.register(A)
    # T and U, with 8 queues each
    expected = {"ready": 1, "watchers": 0, "topics": 2, "queues": 16, "table_revision": 1}
    for _ in range(2):
        metrics = await scrape(server)
        assert {name: metrics(f"nameserver_{name}") for name in expected} == expected
        assert bool(expected["topics"]) == metrics("nameserver_brokers", state="live")
        await server.hang_up(peer)
        await until(lambda: not server.namesrv.manager.tables.topic_queue_table)
        server.namesrv.boot.is_draining = True
        expected = {"ready": 0, "watchers": 0, "topics": 0, "queues": 0, "table_revision": 2}


async def test_broker_is_suspect_after_a_missed_heartbeat(server: InProcess) -> None:
    """A broker is suspect after three quarters of a short expiry, and live again after its next heartbeat."""
    peer, other = await server.connect(), await server.connect()
    await peer.register(A)
    # a broker with an expiry of 10 s is suspect after 7.5 s
    await other.register(B, heartbeatTimeoutMillis="10000")

    for seconds, live, suspect in ((7.0, 2, 0), (1.0, 1, 1)):
        await server.clock.advance(seconds)
        metrics = await scrape(server)
        assert tuple(metrics("nameserver_brokers", state=state) for state in ("live", "suspect")) == (live, suspect)
    await other.call(904, B.ext)
    assert (await scrape(server))("nameserver_brokers", state="live") == 2


async def test_broker_groups_are_counted_by_health(server: InProcess) -> None:
    """A master that hangs while its slave sends heartbeats is silent after half of its expiry, and then missing."""
    master, slave, other = await server.connect(), await server.connect(), await server.connect()
    await master.register(MASTER, heartbeatTimeoutMillis=20_000)
    await slave.register(SLAVE)
    # silent for as long, with the default expiry of 120 s
    await other.register(OTHER)
    states = ("healthy", "silent_master", "without_master")

    found = []
    for seconds in (0.0, 10.0, 0.1, 20.0):
        await server.clock.advance(seconds)
        await slave.call(904, SLAVE.ext)
        metrics = await scrape(server)
        found.append(tuple(metrics("nameserver_broker_groups", state=state) for state in states))

    assert found == [(2, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]


async def test_lateness_of_heartbeats(server: InProcess, peer: NamesrvPeer) -> None:
    """The histogram has a heartbeat in time, one 5 s late and an unchanged registration."""
    await peer.register(A)
    for seconds in (30.0, 35.0):
        await server.clock.advance(seconds)
        await peer.call(904, A.ext)
    await server.clock.advance(1.0)
    await peer.register(A)

    metrics = await scrape(server)

    assert tuple(metrics("nameserver_heartbeats_total", kind=kind) for kind in ("heartbeat", "registration")) == (2, 1)
    name = "nameserver_heartbeat_lateness_seconds"
    assert tuple(metrics(f"{name}_bucket", le=le) for le in ("0.0", "2.5", "5.0", "+Inf")) == (2, 2, 3, 3)
    assert (metrics(f"{name}_count"), metrics(f"{name}_sum")) == (3, 5.0)


@pytest.mark.parametrize(
    ("reason", "seconds"), [("silent", 130.0), ("disconnected", 2.0), ("unregistered", 2.0), ("superseded", 2.0)]
)
async def test_evictions_by_reason(server: InProcess, peer: NamesrvPeer, reason: str, seconds: float) -> None:
    """Each reason of an eviction is counted with the staleness at that time."""
    await peer.register(A)
    await server.clock.advance(seconds)
    if reason == "disconnected":
        await server.hang_up(peer)
    elif reason == "unregistered":
        await peer.call(104, A.ext)
    elif reason == "superseded":
        await peer.register(Broker("broker-z", 0, A.addr))
    await until(lambda: server.namesrv.counters.staleness[reason].count)  # type: ignore[index]

    metrics = await scrape(server)

    ended = by(metrics, "nameserver_evictions_total", "reason")
    assert {of: count for of, count in ended.items() if count} == {(reason,): 1}
    name = "nameserver_route_staleness_seconds"
    assert metrics(f"{name}_sum", reason=reason) == seconds
    for le, count in (("127.5", seconds < 127.5), ("130.0", True)):
        assert metrics(f"{name}_bucket", reason=reason, le=le) == count
    assert metrics("nameserver_scan_seconds_count") == seconds // 10


async def test_connections_by_protocol_and_role(server: InProcess) -> None:
    """Open connections are counted by protocol and role; both are `none` before the first request."""
    broker, agent, client, operator, _silent = [await server.connect() for _ in range(5)]
    await broker.register(A, spelling="binary")
    await agent.register(B, spelling="native")
    await client.call(105, {"topic": "T"})
    await operator.call(106)

    metrics = await scrape(server)

    assert by(metrics, "nameserver_connections", "proto", "role") == {
        ("rocketmq", "broker"): 1,
        ("msgpack", "broker"): 1,
        ("json", "client"): 1,
        ("json", "admin"): 1,
        ("none", "none"): 1,
    }


async def test_closed_connections_are_counted_by_reason(server: InProcess) -> None:
    """A malformed frame counts as a frame error of its protocol, and an idle connection as a rejected one."""
    idle, peer, stranger = [await server.connect() for _ in range(3)]
    await idle.call(106)
    await peer.call(106, spelling="native")
    for broken in (peer, stranger):
        broken.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await broken.at_end()
    await server.clock.advance(602.0)
    assert await idle.at_end()

    metrics = await scrape(server)

    errors = by(metrics, "nameserver_frame_errors_total", "proto", "reason")
    assert errors == {("msgpack", "frame_too_large"): 1, ("none", "frame_too_large"): 1}
    assert metrics("nameserver_connections_rejected_total", reason="idle") == 1


async def test_slow_consumer_is_counted(server: InProcess) -> None:
    """A peer that is closed because it does not read counts as a slow consumer."""
    broker = await server.connect()
    await broker.register(A, registration(*(f"topic-{number:04}" for number in range(500))))
    peer = await RawPeer.connect(server.address, receive_buffer=4096)
    await until(lambda: len(server.namesrv.slots.connections) == 2)
    connection = max(server.namesrv.slots.connections.values(), key=lambda each: each.id)

    while connection.is_open:
        # each response lists all topics and exceeds the socket buffers; the deadline is half a minute
        peer.send(request_frame(206))
        await server.clock.advance(0.1)
    peer.writer.transport.abort()

    assert (await scrape(server))("nameserver_slow_consumers_total") == 1


async def test_bytes_by_direction(server: InProcess) -> None:
    """Bytes of closed connections stay in the counters."""
    before, peer, asked = await scrape(server), await server.connect(), request_frame(206)
    peer.send(asked)
    length = await peer.reader.readexactly(4)
    answered = await peer.reader.readexactly(int.from_bytes(length))
    await server.hang_up(peer)

    metrics = await scrape(server)
    grown = [
        metrics("nameserver_bytes_total", dir=way) - before("nameserver_bytes_total", dir=way) for way in ("in", "out")
    ]
    assert grown == [len(asked), 4 + len(answered)]


async def test_requests_by_code_and_result(server: InProcess, peer: NamesrvPeer) -> None:
    """Requests on both paths are counted under RocketMQ's names; watches have a class of their own."""
    members = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "since": 0, "wait_ms": 60_000}
    watcher = await server.connect()
    opaque = watcher.send_request(20001, None, native(members), spelling="native")
    await until(lambda: len(server.namesrv.routes.watchers))
    assert (await scrape(server))("nameserver_watchers") == 1
    await peer.register(A)
    await watcher.response_to(opaque)
    for code, ext in ((105, {"topic": "T"}), (105, {"topic": "T"}), (105, {"topic": "missing"}), (904, A.ext)):
        await peer.call(code, ext)
    for code in (322, 322, 4711):
        await peer.call(code, A.ext)

    metrics = await scrape(server)

    assert by(metrics, "nameserver_requests_total", "code", "result") == {
        ("REGISTER_BROKER", "SUCCESS"): 1,
        ("PULL_ROUTES", "SUCCESS"): 1,
        ("GET_ROUTEINFO_BY_TOPIC", "SUCCESS"): 2,
        ("GET_ROUTEINFO_BY_TOPIC", "TOPIC_NOT_EXIST"): 1,
        ("BROKER_HEARTBEAT", "SUCCESS"): 1,
        ("QUERY_DATA_VERSION", "SUCCESS"): 2,
        ("UNKNOWN", "REQUEST_CODE_NOT_SUPPORTED"): 1,
    }
    # The dispatcher answered a registration, first requests, a watch and an unknown code.
    timed = {labels["class"] for labels in metrics.labels("nameserver_request_seconds_count")}
    assert {kind: metrics("nameserver_request_seconds_count", class_=kind) for kind in timed} == {
        "broker": 3,
        "client": 2,
        "watch": 1,
        "unknown": 1,
    }
    assert metrics("nameserver_request_seconds_sum", class_="broker") > 0


async def test_lock_waits_are_counted(server: InProcess, peer: NamesrvPeer) -> None:
    """Only acquisitions of the lock that had to wait are counted."""
    lock = server.namesrv.manager.lock
    async with lock.read():
        peer.send_request(103, A.ext, registration("T", "U"))
        await until(lambda: "1 write" in repr(lock))
    await peer.receive()
    await peer.register(B)

    metrics = await scrape(server)

    assert metrics("nameserver_lock_wait_seconds_count", mode="write") == 1
    assert metrics("nameserver_lock_wait_seconds_count", mode="read") == 0
    assert metrics("nameserver_lock_wait_seconds_sum", mode="write") > 0


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_event_loop_lag(server: InProcess) -> None:
    """A callback that runs for 0.3 s shows as event loop lag."""
    lag = server.namesrv.counters.lag
    await until(lambda: lag.count >= 2)
    before = lag.sum
    time.sleep(LAG_INTERVAL_SECONDS + 0.3)
    await until(lambda: lag.sum >= before + 0.3)

    metrics = await scrape(server)
    assert metrics("nameserver_eventloop_lag_seconds_count") >= 3
    assert metrics("nameserver_eventloop_lag_seconds_sum") >= 0.3


async def test_age_and_size_of_the_snapshot(server: InProcess, tmp_path: Path) -> None:
    """The age of the snapshot's contents stays below 5 s unless the file cannot be written."""
    await server.clock.advance(5.0)
    assert _snapshot(await scrape(server)) == (0, 0)
    peer = await server.connect()
    await peer.register(A)
    await server.clock.advance(1.0)
    await until(lambda: server.namesrv.counters.snapshot_bytes)
    size = (tmp_path / "snapshot.json").stat().st_size
    assert _snapshot(await scrape(server)) == (0.0, size)
    await server.clock.advance(4.0)
    assert _snapshot(await scrape(server)) == (4.0, size)

    # permissions do not stop root from writing, but a directory in place of the file does
    (tmp_path / "snapshot.json").unlink()
    (tmp_path / "snapshot.json").mkdir()
    await peer.register(B)
    await server.clock.advance(20.0)
    assert _snapshot(await scrape(server))[0] == 24.0


async def test_metrics_of_the_heartbeat_log(tmp_path: Path) -> None:
    """Queue and losses are exported only when the server has a heartbeat log."""
    async with namesrv_in_process(tmp_path / "with", heartbeat_log_dir=str(tmp_path / "log")) as server:
        assert isinstance(server.namesrv.heartbeat_log, HeartbeatLog)
        metrics = await scrape(server)
        names = {"nameserver_eventlog_queue", "nameserver_eventlog_dropped_total", "nameserver_log_lines_lost_total"}
        assert names <= metrics.names
    async with namesrv_in_process(tmp_path / "without", heartbeat_log_dir="") as server:
        assert [name for name in (await scrape(server)).names if "eventlog" in name] == []


async def test_lost_lines_of_the_audit_trail_are_counted(server: InProcess) -> None:
    """Lines about operators and refusals count, and so do those about brokers, which have files of their own."""
    for log in server.audit.logs:
        # more than the whole queue holds
        log.put(Item(0.0, 0.0, {"event": "change"}, 1_000_000))

    assert (await scrape(server))("nameserver_audit_dropped_total") == 2.0


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_http_requests_by_path_and_status(server: InProcess) -> None:
    """HTTP requests are counted by path and status; unknown paths are counted together."""
    address = server.controller.http.pages[0]
    for target in ("/livez", "/livez?verbose", "/x", "/y", "/readyz"):
        await asyncio.to_thread(ask, address, target)

    metrics = await scrape(server)

    asked = by(metrics, "nameserver_http_requests_total", "path", "status")
    assert asked == {("/livez", "200"): 2, ("/readyz", "200"): 1, ("other", "404"): 2}


def _snapshot(metrics: Scrape) -> tuple[float, float]:
    return metrics("nameserver_snapshot_age_seconds"), metrics("nameserver_snapshot_bytes")


# -- cost of a scrape --------------------------------------------------------------------------------------------------

# function calls in one uninterrupted step of the loop; `make bench` measures its time
MAX_CALLS = 1_200


async def test_scrape_yields_to_the_loop(server: InProcess) -> None:
    """With a thousand brokers on a hundred connections, no step of a scrape visits all of them."""
    peers = [await server.connect() for _ in range(100)]
    for number in range(1000):
        body = registration(*(f"topic-{number % 100}-{each}" for each in range(10)))
        broker = Broker(f"broker-{number}", 0, f"10.0.{number // 250}.{number % 250}:10911")
        await peers[number % 100].register(broker, body)

    of_brokers, brokers = await _driven(count_brokers(server.namesrv))
    of_connections, connections = await _driven(count_connections(server.namesrv))
    metrics = await scrape(server)

    assert metrics("nameserver_brokers", state="live") == 1000
    assert metrics("nameserver_connections", proto="json", role="broker") == 100
    assert (metrics("nameserver_topics"), metrics("nameserver_queues")) == (1000, 80_000)
    assert metrics("nameserver_table_bytes") == 1000 * 2048 + 1000 * 600
    assert (brokers["live"], connections["json", "broker"]) == (1000, 100)
    assert max(of_brokers, of_connections) < MAX_CALLS


async def _driven(work: Coroutine[None, None, T]) -> tuple[int, T]:
    """The number of function calls in the longest step of a coroutine, and its result."""
    longest = 0
    steps = work.__await__()
    while True:
        calls = itertools.count()
        # the collector would call finalizers of garbage that is not the work's
        gc.disable()
        sys.setprofile(lambda _frame, event, _argument: event.endswith("call") and next(calls))  # noqa: B023 - of this step
        try:
            waits_for = next(steps)
        except StopIteration as done:
            return longest, done.value
        finally:
            sys.setprofile(None)
            gc.enable()
            longest = max(longest, next(calls))
        assert waits_for is None, "the coroutine only yields to the loop"
        await asyncio.sleep(0)
