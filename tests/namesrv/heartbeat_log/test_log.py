"""Contents of the heartbeat log of a running server, as described in docs/heartbeat-log.md."""

import gc
import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_clock import until
from tests.support.heartbeat_files import Line, of, only, read_log
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import SLAVE, TIMESTAMP, Broker, NamesrvPeer, native, native_registration, registration

BROKER = Broker()
PULL, PULL_ROUTES, UNREGISTER, HEARTBEAT, VERSION = 105, 20001, 104, 904, 322
# start of the fake clock
START_MS = 1_000_000


async def pull(peer: NamesrvPeer, topic: str, **how: Any) -> int:
    """Request the route of a topic."""
    return (await peer.call(PULL, {"topic": topic}, **how)).code


async def send_heartbeat(peer: NamesrvPeer, broker: Broker = BROKER) -> None:
    """Send a heartbeat."""
    assert (await peer.call(HEARTBEAT, broker.ext)).code == 0


async def log_of(server: InProcess) -> list[Line]:
    """The lines of the server, which is stopped for them."""
    await server.stop()
    return read_log(server.data_dir / "heartbeats")


def revisions_of(lines: list[Line], topic: str) -> list[int]:
    """The revisions of the changes of a topic's route."""
    return [line["revision"] for line in of(lines, "route") for change in line["changes"] if topic in change["topics"]]


def by_topic(lines: list[Line], event: str) -> list[Line]:
    """One dict per topic for the lines of an event that lists topics, revisions or counts."""
    found: list[Line] = []
    for line in of(lines, event):
        lists = [line[name] for name in ("topics", "revisions", "counts") if name in line]
        names = ("topic", "revision", "count")
        found += [line | dict(zip(names, each, strict=False)) for each in zip(*lists, strict=True)]
    return found


@pytest.mark.settings(nameserver_name="ns-7", broker_expiry_seconds=60.0)
async def test_first_and_last_line_of_a_boot(server: InProcess) -> None:
    """A log begins with the settings that shape staleness, and ends when the server stops."""
    lines = await log_of(server)

    first, last = lines[0], lines[-1]
    named = {"nameserver": "ns-7", "boot_id": server.namesrv.boot.id}
    assert {"v": 2, "seq": 1, **named, "event": "start"}.items() <= first.items()
    assert only(first, "scan_interval_ms", "broker_expiry_ms", "evict_on_disconnect") == [10_000, 60_000, True]
    assert only(last, "event", "dropped") == ["stop", 0]
    assert only(first, "ts_ms", "mono_ms") == [1_700_000_000_000, START_MS]
    assert list(range(1, len(lines) + 1)) == [line["seq"] for line in lines]


async def test_lines_of_a_broker(server: InProcess) -> None:
    """A broker registers, sends a heartbeat, registers unchanged and is evicted, each with the server's own time."""
    peer = await server.connect()
    await peer.register(BROKER)
    await server.clock.advance(30.0)
    # brokers of RocketMQ send 322 as a heartbeat
    await peer.call(VERSION, BROKER.ext, b"{}")
    await server.clock.advance(0.5)
    await peer.register(BROKER)
    await server.clock.advance(130.0)
    lines = await log_of(server)

    lived = of(lines, "register", "heartbeat", "evict")
    assert [only(line, "event", "mono_ms", "kind", "silent_ms") for line in lived[:3]] == [
        ["register", START_MS, "full", 0],
        ["heartbeat", START_MS + 30_000, "touch", 30_000],
        ["register", START_MS + 30_500, "unchanged", 500],
    ]
    evict = lived[3]
    assert only(evict, "reason", "mono_ms", "silent_ms") == ["silent", START_MS + 160_000, 129_500]
    assert only(evict, "last_seq", "scan") == [lived[2]["seq"], 16]
    named = ["cluster", "broker_name", "broker_id", "broker_addr", "expiry_ms", "topics", "data_version", "agent_id"]
    assert only(lived[0], *named) == [
        "cluster-1",
        "broker-a",
        0,
        "10.0.0.1:10911",
        120_000,
        2,
        f"0/{TIMESTAMP}/1",
        None,
    ]
    assert only(lived[0], *named[:5]) == only(evict, *named[:5])


async def test_lines_of_unregistrations_and_disconnects(server: InProcess) -> None:
    """Unregistrations and disconnects have different reasons; an unregistration of an unknown broker has no line."""
    leaver, breaker = await server.connect(), await server.connect()
    await leaver.register(BROKER)
    await breaker.register(SLAVE)
    await leaver.call(UNREGISTER, BROKER.ext)
    await leaver.call(UNREGISTER, BROKER.ext)
    await server.hang_up(breaker)
    await server.clock.advance(0.1)
    lines = of(await log_of(server), "unregister", "evict")

    assert [line["event"] for line in lines] == ["unregister", "evict", "evict"]
    assert [(line["reason"], line["scan"]) for line in lines[1:]] == [("unregistered", None), ("disconnected", None)]


async def test_heartbeat_after_a_step_of_the_wall_clock_has_the_new_time(server: InProcess) -> None:
    """The difference of the clocks is read about once a second, since a heartbeat must not take the time for it."""
    broker = await server.connect()
    await broker.register(BROKER)
    server.clock.step_wall(60.0)
    await server.clock.advance(1.0)
    await send_heartbeat(broker)
    registered, heartbeat = of(await log_of(server), "register", "heartbeat")

    assert heartbeat["ts_ms"] - registered["ts_ms"] == 61_000


async def test_every_scan_has_a_line(server: InProcess) -> None:
    """A replay needs the scans to know when a silent broker was due."""
    peer = await server.connect()
    await peer.register(BROKER)
    await server.clock.advance(20.0)
    scans = [only(line, "scan", "brokers", "mono_ms") for line in of(await log_of(server), "scan")]
    # the stop of the server may add scans
    assert scans[:2] == [[1, 1, START_MS + 10_000], [2, 1, START_MS + 20_000]]


async def test_late_event_loop_has_a_line(server: InProcess) -> None:
    """A minute in which the server itself was blocked is logged, so that it is not counted as silence."""
    peer = await server.connect()
    await peer.register(BROKER)
    await server.clock.advance(0.5)
    server.clock.stall(60.0)
    await server.clock.advance(5.0)
    (late,) = of(await log_of(server), "late")

    assert only(late, "mono_ms", "late_ms") == [START_MS + 60_500, 59_500]


async def test_size_of_route_lines_is_linear_in_brokers(server: InProcess, peer: NamesrvPeer, tmp_path: Path) -> None:
    """Each registration writes only its own change, not all brokers of the topic."""
    for number in range(400):
        await peer.register(Broker(f"broker-{number}", addr=f"10.0.{number // 200}.{number % 200}:10911"))
    await server.stop()
    size = sum(len(gzip.decompress(path.read_bytes())) for path in (tmp_path / "heartbeats").rglob("*.gz"))

    # 350 bytes for the broker's line, and 250 for its topics
    assert 400 * 400 < size < 400 * 800


@pytest.mark.settings(heartbeat_log_max_bytes=1 << 20)
async def test_files_are_small_beside_their_bound(server: InProcess, peer: NamesrvPeer, tmp_path: Path) -> None:
    """The open file is never deleted, so that it holds a sixteenth of `heartbeat_log_max_bytes` at most."""
    for half in ("a", "b"):
        await peer.register(BROKER, registration(*(f"{half * 100}-{number}" for number in range(1000))))
        await server.lines()
    await server.stop()

    assert len(list((tmp_path / "heartbeats").glob("dt=*/hour=*/*"))) > 1


@pytest.mark.parametrize("spelling", ["json", "native", "binary"])
async def test_served_route_has_one_line_per_client_and_revision(server: InProcess, spelling: str) -> None:
    """Repeated pulls of one revision write one line on either path, with the revision of the route line."""
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER, registration("T", "U"))
    for _ in range(3):
        assert await pull(client, "T", spelling=spelling) == 0
    await broker.register(SLAVE, registration("T", "U"))
    await pull(client, "T", spelling=spelling)
    await pull(client, "unknown", spelling=spelling)
    name = f"{client.address}#{server.connection_of(client).id}"
    await server.hang_up(client)
    lines = await log_of(server)

    served = by_topic(lines, "served")
    assert [("T", revision) for revision in revisions_of(lines, "T")] == [
        (line["topic"], line["revision"]) for line in served
    ]
    (gone,) = of(lines, "client_gone")
    assert max(line["seq"] for line in served) < gone["seq"]
    assert {line["client"] for line in [*served, gone]} == {name}


@pytest.mark.parametrize("spelling", ["json", "native", "binary"])
async def test_served_absence_has_one_line(server: InProcess, spelling: str) -> None:
    """A client that gets code 17 for a topic that it knew has a `served` line with the removing revision."""
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER, native_registration("T"), spelling="native")
    assert await pull(client, "T", spelling=spelling) == 0
    await broker.call(UNREGISTER, BROKER.ext, spelling="native")
    for _ in range(2):
        assert await pull(client, "T", spelling=spelling) == 17
    lines = await log_of(server)

    revisions = revisions_of(lines, "T")
    assert len(revisions) == 2
    assert [line["revision"] for line in by_topic(lines, "served")] == revisions


async def test_pulls_are_counted_by_the_revision_that_was_served(server: InProcess) -> None:
    """Pulls of a late broker's topic are counted, apart from those after a change of the route in one scan interval."""
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER, registration("T", "U"))
    await pull(client, "T")
    await server.clock.advance(51.0)
    await pull(client, "T")
    await broker.register(SLAVE, registration("T", "U"))
    await pull(client, "T")
    await client.call(PULL_ROUTES, None, native({"topics": ["T"]}), spelling="native")
    await server.clock.advance(10.0)
    lines = await log_of(server)

    first, second = revisions_of(lines, "T")
    assert [(line["revision"], line["count"]) for line in by_topic(lines, "pulls")] == [(first, 1), (second, 2)]


async def test_served_records_are_bounded(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit served records are emptied, so the next response is logged once more."""
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.MAX_SERVED_PAIRS", 2)
    broker, client, other = await server.connect(), await server.connect(), await server.connect()
    await broker.register(BROKER, registration("A", "B", "C"))
    for topic in "ABCA":
        await pull(client, topic)
    # The client pulls nothing any more; its record holds no memory beyond the limit.
    await pull(other, "C")
    assert not server.connection_of(client).peer.served
    await server.hang_up(client)
    await pull(other, "A")
    await pull(other, "B")
    served = by_topic(await log_of(server), "served")

    assert list("ABCACAB") == [line["topic"] for line in served]


async def test_only_the_oldest_served_record_is_emptied(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit one record gives up its pairs: emptying the records of all clients at once would stop the loop."""
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.MAX_SERVED_PAIRS", 4)
    broker, *clients = [await server.connect() for _ in range(4)]
    await broker.register(BROKER, registration("A", "B"))
    for client in clients:
        await pull(client, "A")
        await pull(client, "B")

    assert [len(server.connection_of(client).peer.served or ()) for client in clients] == [0, 2, 2]


async def test_served_records_end_with_their_connections(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of closed connections do not count towards the limit: the record of an open one keeps its pairs."""
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.MAX_SERVED_PAIRS", 3)
    broker = await server.connect()
    await broker.register(BROKER, registration("A", "B"))
    for _ in range(3):
        client = await server.connect()
        for topic in "ABAB":
            await pull(client, topic)
        await server.hang_up(client)
    assert list("ABABAB") == [line["topic"] for line in by_topic(await log_of(server), "served")]


async def test_closed_connection_gives_up_no_pairs(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the record of an open connection is emptied, since one of a closed connection is forgotten."""
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.MAX_SERVED_PAIRS", 3)
    broker, closed, first, second = [await server.connect() for _ in range(4)]
    await broker.register(BROKER, registration("A", "B", "C"))
    for topic in "AB":
        await pull(closed, topic)
    await server.hang_up(closed)
    for topic in "ABC":
        await pull(first, topic)
    await pull(second, "A")

    assert [server.connection_of(client).peer.served for client in (first, second)] == [{}, {"A": 1}]


async def test_response_to_a_closed_connection_is_not_logged(server: InProcess) -> None:
    """The response does not arrive, and the connection has no record that would stay in memory."""
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER, registration("A"))
    connection, log = server.connection_of(client), server.namesrv.heartbeat_log
    assert log is not None
    await server.hang_up(client)
    log.served(connection, "A", 1)
    log.served_many(connection, [("A", 1)])

    assert connection.peer.served is None
    assert of(await log_of(server), "served") == []


async def test_nothing_follows_the_last_line(server: InProcess) -> None:
    """Events between the last line and the end of the process would begin another file."""
    peer = await server.connect()
    await peer.register(BROKER)
    log = server.namesrv.heartbeat_log
    assert log is not None
    assert await log.close()
    await send_heartbeat(peer)
    await peer.call(UNREGISTER, BROKER.ext)

    assert log.lines.queued == 0
    assert (await log_of(server))[-1]["event"] == "stop"


async def test_large_served_record_loses_its_first_pairs(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit a record with very many pairs gives up only as many as a step may remove."""
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.MAX_SERVED_PAIRS", 4)
    monkeypatch.setattr("namesrv.heartbeat_log.served_revisions.FORGOTTEN_AT_ONCE", 2)
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER, registration(*"ABCDE"))
    for topic in "ABCDE":
        await pull(client, topic)

    assert list(server.connection_of(client).peer.served or ()) == ["C", "D", "E"]


async def test_served_records_hold_no_responses(server: InProcess) -> None:
    """A record of what a client got takes a few bytes for each topic, not the response, which may have megabytes."""
    topics = [f"topic-{number}" for number in range(60)]
    broker, client = await server.connect(), await server.connect()
    for number in range(60):
        member = Broker(f"broker-{number}-{'x' * 200}", 0, f"10.0.1.{number}:10911")
        await broker.register(member, registration(*topics))
    # One response has 30 KB.
    tracemalloc.start()
    try:
        for number, topic in enumerate(topics):
            await broker.register(BROKER, registration(*topics, counter=number), haServerAddr=f"h:{number}")
            await broker.call(UNREGISTER, BROKER.ext)
            for _ in range(3):
                assert await pull(client, topic) == 0
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000


async def test_route_request_of_a_closed_connection_has_no_line(server: InProcess) -> None:
    """A request that is carried out after its connection has closed is not served, and its client stays gone."""
    broker, client = await server.connect(), await server.connect()
    await broker.register(BROKER)
    await pull(client, "T")
    async with server.namesrv.manager.lock.write():
        # The pull waits for the end of the request before it.
        client.send_request(UNREGISTER, SLAVE.ext)
        client.send_request(PULL, {"topic": "U"})
        connection = server.connection_of(client)
        await until(lambda: connection.in_flight == 2)
        await server.hang_up(client)
    await until(lambda: connection.in_flight == 0)
    lines = await log_of(server)

    assert [line["event"] for line in of(lines, "served", "client_gone")] == ["served", "client_gone"]
