"""The tick of every second: lateness, readiness, then the scan; and log lines of connections."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from functools import partial
from pathlib import Path

import pytest

from namesrv.net.fairness.read_shares import LEAST_SHARE
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv.server.arrived_input import ArrivedInput
from namesrv.server.housekeeping import Housekeeping
from namesrv.server.process_stops import ProcessStops
from namesrv.state.expected_back import RECONNECTION_SECONDS
from namesrv.state.sd_notify import ServiceManager
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import Broker, NamesrvPeer, registration, request_frame
from tests.support.spelling import json_frame
from tests.support.table_invariants import violations

A = Broker()
B = Broker("broker-b", 0, "10.0.0.2:10911")


def alive(server: InProcess) -> list[str]:
    """Names of the live brokers."""
    assert violations(server.namesrv.manager.tables) == []
    return sorted(live.broker_name for live in server.namesrv.manager.tables.broker_live_table.values())


def housekeeping_of(server: InProcess) -> Housekeeping:
    """Further housekeeping of the server, for ticks without a pause."""
    remoting = server.controller.server
    arrived_input = ArrivedInput(server.clock, remoting.read_shares, remoting.scheduler)
    scan_interval_seconds = server.namesrv.settings.current.scan_interval_seconds
    process_stops = ProcessStops(server.clock, scan_interval_seconds)
    return Housekeeping(server.namesrv, arrived_input, process_stops, ServiceManager())


@pytest.mark.parametrize(
    "after",
    [
        # the defaults: an expiry of 120 s and a scan every 10 s
        pytest.param(130.0, marks=pytest.mark.settings()),
        pytest.param(4.0, marks=pytest.mark.settings(scan_interval_seconds=2, broker_expiry_seconds=3)),
        # lateness is checked once a second, or as often as the scan runs
        pytest.param(1.5, marks=pytest.mark.settings(scan_interval_seconds=0.5, broker_expiry_seconds=1)),
    ],
)
async def test_silent_broker_is_evicted_by_the_next_scan(server: InProcess, after: float) -> None:
    """The connection of an evicted broker is closed, so that a broker which hung connects and registers anew."""
    peer, client = await server.connect(), await server.connect()
    await peer.register(A)
    await client.call(106)

    await server.clock.advance(after - 0.1)
    assert alive(server) == ["broker-a"]
    await server.clock.advance(0.1)
    assert alive(server) == []
    (evicted,) = server.events("evict")
    assert (evicted["reason"], evicted["silent_ms"]) == ("silent", 1000 * after)
    assert await peer.at_end()
    assert server.find_connection(client) is not None


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel has no user timeout")
async def test_broker_stays_until_its_expiry_after_the_kernel_gave_up_its_connection(server: InProcess) -> None:
    """In a network that drops packets, the kernel ends connections after 30 to 75 s, before the brokers are silent."""
    peer = await NamesrvPeer.connect(server.address, receive_buffer=1)
    await peer.register(A)
    connection = server.connection_of(peer)
    assert connection.socket is not None
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1)
    # The kernel cannot send these responses, as if the network dropped all packets.
    peer.send(200 * request_frame(319))
    await until(lambda: not connection.is_open)
    peer.close()

    await server.clock.advance(119)
    assert alive(server) == ["broker-a"]
    await server.clock.advance(11)
    assert alive(server) == []
    assert [evicted["reason"] for evicted in server.events("evict")] == ["silent"]


@pytest.mark.settings(drain_seconds=60.0, scan_interval_seconds=1.0, broker_expiry_seconds=3.0)
async def test_draining_server_evicts_silent_brokers_while_clients_are_connected(server: InProcess) -> None:
    """A drain that lasts longer than the expiry shows no client a dead broker for longer."""
    peer, _, client = await server.connect(), await server.connect(), await server.connect()
    await peer.register(A)
    server.controller.ask_to_stop()
    # the drain begins once the snapshot is written
    await until(lambda: len(server.namesrv.slots.connections) < 3)
    await server.hang_up(peer)

    await server.clock.advance(4)

    assert (await client.call(105, {"topic": "T"})).code == 17


async def test_connection_with_another_live_broker_stays(server: InProcess, peer: NamesrvPeer) -> None:
    """A connection is closed when its last broker is evicted."""
    await peer.register(A)
    await peer.register(B)
    await server.clock.advance(100)
    await peer.call(904, B.ext)

    await server.clock.advance(30)
    assert alive(server) == ["broker-b"]
    await peer.call(904, B.ext)

    await server.clock.advance(130)
    assert alive(server) == []
    assert await peer.at_end()


async def test_time_in_which_the_server_was_stopped_evicts_no_broker(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """After five minutes in which the process was stopped, every expiry is extended by them, and the log has a line."""
    await peer.register(A)
    await server.clock.advance(100)

    server.clock.stall(300)
    await server.clock.advance(0)
    assert logged(caplog, "event_loop_lagged") == [{"seconds": 299.0, "stopped": 299.0}]

    await server.clock.advance(20)
    assert alive(server) == ["broker-a"]
    await server.clock.advance(11)
    assert alive(server) == []


async def test_busy_server_evicts_dead_brokers_in_time(server: InProcess) -> None:
    """Peers that keep the loop busy for 29 of 30 seconds do not extend the expiry of a dead broker."""
    peer, other = await server.connect(), await server.connect()
    await peer.register(A)
    await other.register(B)
    for _ in range(4):
        server.clock.work(29)
        await server.clock.advance(1)
        await other.call(904, B.ext)
    assert alive(server) == ["broker-a", "broker-b"]

    server.clock.work(29)
    await server.clock.advance(1)

    assert alive(server) == ["broker-b"]
    assert server.events("evict")[0]["silent_ms"] == 149_000


@pytest.mark.parametrize("is_new_connection", [False, True], ids=["own connection", "new connection"])
@pytest.mark.settings(evict_on_disconnect=False)
async def test_received_heartbeat_is_read_before_the_scan(server: InProcess, *, is_new_connection: bool) -> None:
    """A scan first reads heartbeats that wait in sockets, also of a connection that is not accepted yet."""
    housekeeping = housekeeping_of(server)
    with socket.create_connection(server.address) as own:
        await until(lambda: server.namesrv.slots.connections)
        own.sendall(json_frame(103, 1, A.ext, registration("T", "U")))
        await until(lambda: server.namesrv.manager.tables.broker_live_table)
        server.clock.stall(130.1)

        with socket.create_connection(server.address) if is_new_connection else contextlib.nullcontext(own) as peer:
            peer.sendall(json_frame(904, 2, A.ext))
            await housekeeping.tick(0.0)

            assert alive(server) == ["broker-a"]
            server.clock.stall(130.1)
            await housekeeping.tick(0.0)
            assert alive(server) == []


async def test_heartbeat_that_waits_for_its_turn_is_read_before_the_scan(server: InProcess, peer: NamesrvPeer) -> None:
    """A scan first lets every address continue whose input waits, however many addresses wait."""
    housekeeping = housekeeping_of(server)
    await peer.register(A)
    server.clock.stall(130.1)
    shares, connection = server.controller.server.read_shares, server.find_connection(peer)
    assert connection is not None
    for number in range(200):
        share = shares.enter(f"192.0.2.{number}")
        share.wait(partial(share.spend, LEAST_SHARE))  # type: ignore[arg-type]
    connection.read_share.wait(lambda: connection.data_received(json_frame(904, 2, A.ext)))

    await housekeeping.tick(0.0)

    assert alive(server) == ["broker-a"]


@pytest.mark.settings(heartbeat_log_dir="")
@pytest.mark.parametrize("code", [103, 904])
async def test_busy_server_reads_new_connections_before_the_scan(
    server: InProcess, peer: NamesrvPeer, code: int
) -> None:
    """A scan first reads new connections, although each iteration of the loop takes a second."""
    housekeeping = housekeeping_of(server)
    await peer.register(A)
    server.clock.work(130.1)

    async def work() -> None:
        while True:
            server.clock.work(1)
            await asyncio.sleep(0)

    with socket.create_connection(server.address) as other:
        other.sendall(json_frame(code, 2, A.ext, registration("T", "U") if code == 103 else b""))
        working = asyncio.create_task(work())
        await housekeeping.tick(0.0)
        working.cancel()

        assert alive(server) == ["broker-a"]


async def test_scan_that_waits_evicts_no_broker_that_became_due_meanwhile(server: InProcess, peer: NamesrvPeer) -> None:
    """A scan reads the sockets only if a broker is due, so a broker that becomes due later waits for the next scan."""
    housekeeping, lock = housekeeping_of(server), server.namesrv.manager.lock
    await peer.register(A)
    async with lock.read():
        server.clock.stall(120.0)
        scan = asyncio.create_task(housekeeping.tick(0.0))
        await until(lambda: "1 write" in repr(lock))
        server.clock.stall(0.1)
    await scan
    assert alive(server) == ["broker-a"]

    server.clock.stall(10.0)
    await housekeeping.tick(0.0)
    assert alive(server) == []


@pytest.mark.parametrize("seconds", [0.5, 10])
async def test_stopped_server_reads_sockets_before_disconnects(server: InProcess, seconds: float) -> None:
    """An agent that reconnected while the server was stopped keeps its broker: its new connection is read first."""
    with socket.create_connection(server.address) as own, socket.socket() as newer:
        await until(lambda: server.namesrv.slots.connections)
        own.sendall(json_frame(103, 1, A.ext, registration("T", "U")))
        await until(lambda: server.namesrv.manager.tables.broker_live_table)

        server.clock.stall(seconds)
        own.close()
        newer.connect(server.address)
        newer.sendall(json_frame(103, 2, A.ext, registration("T", "V")))
        await until(lambda: len(server.events("register")) == 2 or server.events("evict"))
        assert server.events("evict") == []

        newer.close()
        await settle()
        await server.clock.advance(RECONNECTION_SECONDS if seconds > 1 else 0)
        await until(lambda: not alive(server))
        assert [event["reason"] for event in server.events("evict")] == ["disconnected"]


@pytest.mark.parametrize("passes", [0, 8, 12], ids=["first", "later", "last"])
async def test_registration_that_arrives_while_sockets_are_drained_precedes_a_disconnect(
    server: InProcess, passes: int
) -> None:
    """A loop that computed for long before it removes a broker reads first what has arrived meanwhile."""
    with socket.create_connection(server.address) as own, socket.socket() as newer:
        own.sendall(json_frame(103, 1, A.ext, registration("T", "U")))
        await until(lambda: alive(server))

        own.close()
        await until(lambda: not server.namesrv.slots.connections)
        for _ in range(passes):
            await asyncio.sleep(0)
        server.clock.work(0.5)
        newer.connect(server.address)
        newer.sendall(json_frame(103, 2, A.ext, registration("T", "V")))
        await until(lambda: len(server.events("register")) == 2 or server.events("evict"))
        assert server.events("evict") == []


@pytest.mark.parametrize("back_after", [0.0, 8.0, 30.0])
async def test_broker_that_reconnects_to_a_stopped_server_stays(server: InProcess, back_after: float) -> None:
    """A broker that timed out and closed its connection while the server was stopped has seconds to register again."""
    await server.clock.advance(0.5)
    broker, agent = await server.connect(), await server.connect()
    await broker.register(A)
    await agent.register(B)
    server.clock.stall(40)
    broker.close()
    agent.close()
    await until(lambda: not server.namesrv.slots.connections)
    await server.clock.advance(back_after)

    await (await server.connect()).register(A)
    await server.clock.advance(RECONNECTION_SECONDS)
    assert alive(server) == ["broker-a"]
    assert [(event["broker_name"], event["reason"]) for event in server.events("evict")] == [
        ("broker-b", "disconnected")
    ]


async def test_closed_connection_counts_at_once_without_a_stop(server: InProcess) -> None:
    """Without a stop, a closed connection evicts its broker at once, also in a busy or slightly late loop."""
    await server.clock.advance(0.5)
    broker = await server.connect()
    await broker.register(A)
    server.clock.work(5)
    server.clock.stall(0.5)
    broker.close()
    await until(lambda: not alive(server))


@pytest.mark.settings(evict_on_disconnect=False)
async def test_closed_connection_evicts_no_broker_without_eviction_on_disconnect(
    server: InProcess, peer: NamesrvPeer
) -> None:
    """The broker stays until its expiry."""
    await peer.register(A)
    await server.hang_up(peer)
    await server.clock.advance(120)
    assert alive(server) == ["broker-a"]

    await server.clock.advance(10)
    assert server.events("evict")[0]["reason"] == "silent"


async def test_queued_registration_precedes_a_later_disconnect(server: InProcess) -> None:
    """A registration that waits in a long queue counts before the disconnect of an older connection."""
    with socket.create_connection(server.address) as own, socket.create_connection(server.address) as newer:
        own.sendall(json_frame(103, 1, A.ext, registration("T", "U")))
        await until(lambda: len(server.namesrv.slots.connections) == 2 and alive(server))

        crowd = [asyncio.create_task(server.controller.server.scheduler.begin()) for _ in range(1000)]
        await asyncio.sleep(0)
        newer.sendall(json_frame(103, 2, A.ext, registration("T", "V")))
        own.close()
        await until(lambda: len(server.events("register")) == 2 or server.events("evict"))

        assert server.events("evict") == []
        await asyncio.gather(*crowd)


async def test_failing_scan_ends_the_server(tmp_path: Path) -> None:
    """An exception in a scan stops the server, because a server without scans would keep dead brokers silently."""
    clock = FakeClock()
    with pytest.RaisesGroup(AttributeError):
        async with namesrv_in_process(tmp_path, clock=clock) as server:
            # a live entry as only a bug could leave it
            server.namesrv.manager.tables.broker_live_table[BrokerAddrInfo("c", "m:1")] = None  # type: ignore[assignment]

            await clock.advance(130)

            await until(server.serving.done)


async def test_connections_are_logged_at_debug_level(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The log has each opened and closed connection with its peer, at level debug."""
    caplog.set_level(logging.DEBUG)
    peer = await server.connect()
    address, number = peer.address, server.connection_of(peer).id
    await server.hang_up(peer)

    assert logged(caplog, "connection_opened") == [{"connection": number, "peer": address}]
    assert logged(caplog, "connection_closed") == [{"connection": number, "peer": address, "reason": "closed"}]


async def test_log_lines_of_refused_connections_are_limited(
    server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has twenty refused connections a second with peer and reason, and counts the others."""
    hostile = [await server.connect() for _ in range(25)]
    for peer in hostile:
        peer.send(b"\x00\x00\x00\x01")
    for peer in hostile:
        assert await peer.at_end()

    found = logged(caplog, "connection_refused")
    assert len(found) == 20
    assert next(fields for fields in found if fields["peer"] == hostile[0].address) == {
        "peer": hostile[0].address,
        "proxied": None,
        "reason": "frame_too_short",
        "error": "frame length 1, minimum 4",
    }
    assert logged(caplog, "connections_refused") == []

    await server.clock.advance(1)
    assert logged(caplog, "connections_refused") == [{"more": 5}]

    another = await server.connect()
    another.send(b"\x00\x00\x00\x01")
    assert await another.at_end()
    assert len(logged(caplog, "connection_refused")) == 21
    await server.clock.advance(1)
    assert len(logged(caplog, "connections_refused")) == 1


async def test_waits_for_tls_handshakes_are_logged(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """While the handshake threads cannot keep up, each tick logs the number of waiting peers and the longest wait."""
    go_on, ended = threading.Event(), asyncio.Event()
    threads = server.namesrv.certificates.tls.threads

    def wait() -> None:
        assert go_on.wait(GUARD_SECONDS)

    for _ in range(os.cpu_count() or 1):
        threads.run(wait, lambda _: None, is_urgent=True)
    await server.clock.advance(3)
    threads.run(lambda: None, lambda _: ended.set(), is_urgent=False)
    caplog.clear()
    await server.clock.advance(1)
    go_on.set()
    await ended.wait()
    await until(lambda: len(threads) == 0)
    await server.clock.advance(1)

    waiting = 1 + (os.cpu_count() or 1)
    assert logged(caplog, "tls_handshakes_late") == [{"waiting": waiting, "seconds": 4.0}]
    assert (threads.waits.count, threads.waits.sum) == (waiting, 4.0 * (waiting - 1) + 1.0)
