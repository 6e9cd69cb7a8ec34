"""The snapshot of a server's brokers, and the readiness of the next boot."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv.observability.metrics import exposition
from namesrv.server.snapshotter import Snapshotter
from namesrv.state import snapshot
from namesrv.state.snapshot import ExpectedBroker, Snapshot
from tests.support.fake_clock import until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import Broker, NamesrvPeer, native, registration
from tests.support.threads import without_new_threads

A = Broker()
B = Broker("broker-b", 0, "10.0.0.2:10911")
EXPECTED_A = ExpectedBroker("cluster-1", "broker-a", 0, "10.0.0.1:10911")
EXPECTED_B = ExpectedBroker("cluster-1", "broker-b", 0, "10.0.0.2:10911")


# level and event, fields
Log = Callable[[], list[tuple[str, dict[str, Any]]]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """The log of the snapshotter since caplog was cleared."""
    caplog.set_level(logging.DEBUG)
    return lambda: [
        (f"{record.levelname} {record.msg}", vars(record)["fields"])
        for record in caplog.records
        if record.name == "namesrv.server.snapshotter"
    ]


def loaded(data_dir: Path) -> Snapshot:
    """The contents of the snapshot file."""
    found = snapshot.load(data_dir / "snapshot.json")
    assert found is not None
    return found


async def tick(server: InProcess, log: Log, seconds: float = 5) -> None:
    """Advance by some seconds and wait for a log line."""
    count = len(log())
    await server.clock.advance(seconds)
    await until(lambda: len(log()) > count)


async def run_with(data_dir: Path, *brokers: Broker, wiped: bool = False) -> None:
    """Run a server that ends with these brokers alive."""
    async with namesrv_in_process(data_dir) as server:
        peer = await server.connect()
        for broker in brokers:
            await peer.register(broker)
            if wiped:
                await peer.call(205, {"brokerName": broker.name})


async def test_next_boot_expects_brokers_that_a_long_drain_has_disconnected(tmp_path: Path) -> None:
    """A drain may last longer than the expiry of brokers, whose connections the server itself has closed."""
    async with namesrv_in_process(tmp_path, drain_seconds=24.0, scan_interval_seconds=1.0) as server:
        first, last = await server.connect(), await server.connect()
        await first.register(A, heartbeatTimeoutMillis="3000")
        # If the stop wrote the snapshot, the broker would be silent on a slow disk before its connection closes.
        await server.clock.advance(1)
        await until(lambda: server.namesrv.counters.snapshot_bytes)
        # the connection of another broker, which is closed 12 s later
        await last.call(904, B.ext)
        await server.stop()

    assert loaded(tmp_path).brokers == (EXPECTED_A,)


async def test_snapshot_is_written_within_five_seconds(
    server: InProcess, peer: NamesrvPeer, tmp_path: Path, log: Log
) -> None:
    """Any change of the live brokers or write permissions is in the file within five seconds; nothing else is.

    The first brokers are in it within a second: a server that is killed before would expect no brokers at all.
    """
    await peer.register(B)
    await peer.register(A)
    await server.clock.advance(0.9)
    assert log() == []
    await server.clock.advance(0.1)
    await until(lambda: len(log()) == 1)
    assert loaded(tmp_path).brokers == (EXPECTED_B, EXPECTED_A)

    for body in (None, registration("T", "V", counter=2)):
        await peer.register(A, body)
    await peer.call(904, B.ext)
    await server.clock.advance(20)
    assert len(log()) == 1

    await peer.call(205, {"brokerName": "broker-a"})
    await server.clock.advance(4.9)
    assert len(log()) == 1
    await tick(server, log)
    assert loaded(tmp_path).wiped == ((None, "broker-a"),)
    await peer.call(104, B.ext)
    await peer.call(327, {"brokerName": "broker-a"})
    await tick(server, log)
    assert (loaded(tmp_path).brokers, loaded(tmp_path).wiped) == ((EXPECTED_A,), ())
    path = tmp_path / "snapshot.json"
    assert [("DEBUG snapshot_written", {"path": path, "brokers": count}) for count in (2, 2, 1)] == log()


async def test_snapshot_is_written_at_the_stop(tmp_path: Path) -> None:
    """The stop writes a snapshot before it disconnects peers, and a slower earlier write does not replace it."""
    async with namesrv_in_process(tmp_path, broker_expiry_seconds=86400) as server:
        peer = await server.connect()
        for number in range(20):
            await peer.register(Broker(f"broker-{number:02}", 0, f"10.0.0.1:{number + 1}"))
            # starts a write for each broker without waiting for it
            await server.clock.advance(5)
        boot_id = server.namesrv.boot.id

    found = loaded(tmp_path)
    assert (len(found.brokers), found.boot_id) == (20, boot_id)
    # the time of the last broker, or later, since the clock moves on while the disk is slow
    assert found.saved_ms >= 1_700_000_095_000


async def test_missing_brokers_stay_expected_until_the_server_is_ready(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """A snapshot during the wait keeps the missing brokers; a broker at a new address is in it once."""
    await run_with(tmp_path, A, B)
    caplog.clear()

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A._replace(addr="10.9.9.9:10911"))
        await tick(server, log)
        moved = ExpectedBroker("cluster-1", "broker-a", 0, "10.9.9.9:10911")
        assert loaded(tmp_path).brokers == (moved, EXPECTED_B)

        # a snapshot is written when the wait for the missing broker ends
        await server.clock.advance(45)
        await until(lambda: len(log()) == 2)
        assert loaded(tmp_path).brokers == (moved,)


async def test_disconnected_broker_stays_expected_until_it_had_time_to_return(
    server: InProcess, tmp_path: Path, log: Log
) -> None:
    """The snapshot keeps a broker for 35 s after its connection closed, unless the broker unregisters.

    Otherwise a server killed right after a network failure would answer at its next boot before its brokers are back.
    """
    peers = [await server.connect() for _ in range(2)]
    for peer, broker in zip(peers, (A, B), strict=True):
        await peer.register(broker)
    await tick(server, log)

    peers[0].close()
    await until(lambda: len(server.namesrv.manager.tables.broker_live_table) == 1)
    await peers[1].call(104, B.ext)
    await tick(server, log)
    assert loaded(tmp_path).brokers == (EXPECTED_A,)

    count = len(log())
    for _ in range(5):
        await server.clock.advance(5)
        assert loaded(tmp_path).brokers == (EXPECTED_A,)
    assert len(log()) == count
    # The next snapshot after the 35 s is written up to five seconds later.
    await tick(server, log, 10)
    assert loaded(tmp_path).brokers == ()


@contextmanager
def directory_at(path: Path) -> Iterator[None]:
    """A directory in place of a file, which cannot be replaced, not even by root."""
    path.mkdir()
    yield
    path.rmdir()


@pytest.mark.parametrize(
    ("failure", "problem"),
    [(directory_at, "is a directory"), (lambda _: without_new_threads(), "can't start new thread")],
    ids=["directory", "no thread"],
)
async def test_failed_snapshot_is_retried(
    server: InProcess, peer: NamesrvPeer, tmp_path: Path, log: Log, failure: Callable[..., Any], problem: str
) -> None:
    """Failing writes log one error and, when they succeed again, one recovery; the server stops in good order."""
    path = tmp_path / "snapshot.json"
    await peer.register(A)
    with failure(path):
        await tick(server, log)
        await server.clock.advance(20)
        assert server.namesrv.counters.snapshot_writes.problem() == problem
    await tick(server, log)
    await until(lambda: len(log()) > 2)

    names = ["ERROR snapshot_not_written", "INFO snapshot_write_recovered", "DEBUG snapshot_written"]
    assert [name for name, _ in log()] == names
    failed = log()[0][1]
    assert failed["path"] == path
    assert problem in str(failed["error"]).lower()
    assert loaded(tmp_path).brokers == (EXPECTED_A,)

    path.unlink()
    path.mkdir()
    await peer.register(B)
    await server.stop()
    assert log()[-1][0] == "ERROR snapshot_not_written"


def is_ready(server: InProcess) -> bool:
    """Return true if the server answers route requests."""
    return server.namesrv.fast_path.is_ready


async def test_server_is_ready_when_the_wait_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server is ready after the wait of 45 s in spite of missing brokers, which the next boot does not expect."""
    await run_with(tmp_path, A)
    async with namesrv_in_process(tmp_path, wait_for_service_seconds=0, evict_on_disconnect=False) as server:
        assert is_ready(server)
        await (await server.connect()).register(A)
        await server.clock.advance(35)
    caplog.clear()
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path) as server:
        reason = "not ready: waiting 45 s more for 1 of 1 expected broker: cluster-1/broker-a/0 at 10.0.0.1:10911"
        assert logged(caplog, "waiting") == [{"reason": reason}]
        info = (await (await server.connect()).call(20002, spelling="native")).value
        assert (info["ready"], info["readiness"]) == (False, reason)
        assert b"\nnameserver_ready 0.0\n" in await exposition(server.namesrv, server.controller.server)
        await server.clock.advance(44)
        assert not is_ready(server)
        await server.clock.advance(1)
        assert is_ready(server)
        alarm = await exposition(server.namesrv, server.controller.server)
        assert b"\nnameserver_ready_without_brokers 1.0\n" in alarm
        await (await server.connect()).register(B)
        assert not server.namesrv.is_ready_without_brokers()
    waited = "ready: waited 45 s, without 1 of 1 expected broker: cluster-1/broker-a/0 at 10.0.0.1:10911"
    assert [{"reason": waited}] == logged(caplog, "ready") == logged(caplog, "ready_without_brokers")
    async with namesrv_in_process(tmp_path) as server:
        assert [missing.broker_name for missing in server.namesrv.boot.readiness.missing] == ["broker-b"]


@pytest.mark.parametrize("is_master_first", [False, True])
async def test_server_waits_for_no_ids_of_brokers_that_exchanged_roles(
    tmp_path: Path, *, is_master_first: bool
) -> None:
    """A controller elected the slave as master while the server was down: both register with other ids."""
    await run_with(tmp_path, A, Broker("broker-a", 2, B.addr))
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        now = [Broker("broker-a", 1, A.addr), Broker("broker-a", 0, B.addr)]
        for broker in reversed(now) if is_master_first else now:
            assert not is_ready(server)
            await peer.register(broker)
        await server.clock.advance(1)

        assert is_ready(server)


@pytest.mark.parametrize("seconds", [60, 1200])
async def test_stop_of_the_process_does_not_end_the_wait(tmp_path: Path, seconds: float) -> None:
    """Brokers get the rest of their 45 s after the server was stopped; requests that waited meanwhile are refused."""
    await run_with(tmp_path, A)
    async with namesrv_in_process(tmp_path) as server:
        client = await server.connect()
        await server.clock.advance(10)

        server.clock.stall(seconds)
        # The request is read before the tick that notices the stop.
        assert (await client.call(105, {"topic": "T"})).outcome == (1, "name server not ready")
        await server.clock.advance(33)
        assert not is_ready(server)
        await server.clock.advance(3)
        assert is_ready(server)


async def test_lost_snapshot_is_remembered_until_the_wait_is_over(tmp_path: Path, log: Log) -> None:
    """A server that is killed while it waits because of a damaged snapshot waits again at its next boot."""
    path, killed = tmp_path / "snapshot.json", tmp_path / "killed.json"
    path.write_bytes(b"damaged")
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)
        await tick(server, log)
        killed.write_bytes(path.read_bytes())
        await server.clock.advance(45)
        assert is_ready(server)
        # the snapshot of the end of the wait, which may be written already
        await until(lambda: len(log()) == 2)
        assert (loaded(tmp_path).brokers, loaded(tmp_path).is_incomplete) == ((EXPECTED_A,), False)

    path.write_bytes(killed.read_bytes())
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)
        assert not is_ready(server)
        await server.clock.advance(45)
        assert is_ready(server)


async def test_next_boot_waits_for_brokers_after_the_last_one_became_silent(tmp_path: Path) -> None:
    """A network that drops packets may have silenced brokers that live; they have 35 s after the first one is back.

    Otherwise a server that is restarted during the outage would give no routes to the clients that reach it first.
    """
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)
        await server.clock.advance(140)
        assert not server.namesrv.manager.tables.broker_live_table

    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(B)
        await server.clock.advance(44)
        assert not is_ready(server)
        await server.clock.advance(1)
        assert is_ready(server)
        await server.clock.advance(95)
        assert not server.namesrv.manager.tables.broker_live_table
        await (await server.connect()).register(A)
        await server.clock.advance(34)
        (tmp_path / "now").mkdir()
        # The snapshot of this moment is written beside the server's, since the server's clock goes on while it stops.
        await Snapshotter(server.namesrv, tmp_path / "now" / "snapshot.json").tick()
        current = loaded(tmp_path / "now")
        assert (current.brokers, current.is_incomplete) == ((EXPECTED_A,), True)
        await server.clock.advance(1)

    assert (loaded(tmp_path).brokers, loaded(tmp_path).is_incomplete) == ((EXPECTED_A,), False)


async def test_each_boot_of_an_outage_waits_for_brokers(tmp_path: Path) -> None:
    """A boot that no broker has reached expects brokers at the next boot, too, until 35 s after the first is back.

    Otherwise the second restart in one outage would give no routes to the clients that reach the server first.
    """
    await run_with(tmp_path, A)
    for _ in range(2):
        async with namesrv_in_process(tmp_path) as server:
            await server.clock.advance(44)
            assert not is_ready(server)
            client = await server.connect()
            pull = native({"topics": ["T"], "boot_id": None, "since": 0, "wait_ms": 0})
            # The first request comes before the tick that ends the wait.
            server.clock.stall(1)
            assert (await client.call(20001, None, pull, spelling="native")).value["ready"] is False
            await server.clock.advance(1)
            assert is_ready(server)
            assert (await client.call(20001, None, pull, spelling="native")).value["ready"] is False

    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(A)
        assert not is_ready(server)
        await server.clock.advance(45)
        assert is_ready(server)
    assert (loaded(tmp_path).brokers, loaded(tmp_path).is_incomplete) == ((EXPECTED_A,), False)


async def test_removed_write_permission_survives_a_restart(tmp_path: Path) -> None:
    """A broker that registers within its expiry stays read-only; one that does not regains its permission."""
    await run_with(tmp_path, A, B, wiped=True)

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A)
        tables = server.namesrv.manager.tables
        assert tables.write_removed.keys() == {"broker-a", "broker-b"}
        await server.clock.advance(115)
        assert tables.write_removed.keys() == {"broker-a", "broker-b"}
        await peer.register(A)
        await server.clock.advance(15)
        assert tables.write_removed.keys() == {"broker-a"}

        await peer.register(B, registration("U", "V"))
        table = server.namesrv.manager.tables.topic_queue_table
        assert [queues.perm for queues in table["T"].queues] == [4]
        assert [queues.perm for queues in table["U"].queues] == [4, 6]


@pytest.mark.parametrize(("expiry_seconds", "ends_after"), [(120, 60), (600, 540), (65, 35)])
async def test_end_of_a_removed_write_permission_survives_a_restart(
    tmp_path: Path, expiry_seconds: int, ends_after: int
) -> None:
    """The expiry of a master that left goes on after the restart; its slave's registration does not lift that end.

    After a start the master has 35 s at least, in which it connects again.
    """
    slave = Broker("broker-a", 1, "10.0.0.3:10911")
    async with namesrv_in_process(tmp_path) as server:
        master_peer, slave_peer = await server.connect(), await server.connect()
        await master_peer.register(A, heartbeatTimeoutMillis=f"{expiry_seconds}000")
        await slave_peer.register(slave, heartbeatTimeoutMillis="86400000")
        await slave_peer.call(205, {"brokerName": "broker-a"})
        await server.hang_up(master_peer)
        await server.clock.advance(60)
        before_stop = server.clock.monotonic()

    # While the server stopped, its clock went on.
    stop_seconds = server.clock.monotonic() - before_stop
    async with namesrv_in_process(tmp_path, scan_interval_seconds=1.0) as server:
        await (await server.connect()).register(slave, heartbeatTimeoutMillis="86400000")
        tables = server.namesrv.manager.tables
        await server.clock.advance(ends_after - stop_seconds - 2)
        assert tables.write_removed.keys() == {"broker-a"}
        # The file has whole seconds, and a scan comes a second later.
        await server.clock.advance(10)
        assert tables.write_removed == {}


async def test_master_that_returns_after_a_restart_stays_read_only(tmp_path: Path) -> None:
    """It left before the restart, and is back before its expiry is over."""
    slave = Broker("broker-a", 1, "10.0.0.3:10911")
    async with namesrv_in_process(tmp_path) as server:
        master_peer, slave_peer = await server.connect(), await server.connect()
        await master_peer.register(A)
        await slave_peer.register(slave)
        await slave_peer.call(205, {"brokerName": "broker-a"})
        await server.hang_up(master_peer)
        await server.clock.advance(10)

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(slave)
        await peer.register(A)
        await server.clock.advance(115)
        await peer.register(A)
        await server.clock.advance(115)
        assert server.namesrv.manager.tables.write_removed.keys() == {"broker-a"}


async def test_removal_that_had_nearly_ended_does_not_last_for_another_expiry(tmp_path: Path) -> None:
    """The last broker of a group left 100 s before the restart; any broker of the group continues the removal."""
    slave = Broker("broker-b", 1, "10.0.0.3:10911")
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (A, slave):
            await peer.register(broker)
            await peer.call(205, {"brokerName": broker.name})
        await server.hang_up(peer)
        await server.clock.advance(100)

    async with namesrv_in_process(tmp_path, scan_interval_seconds=1.0) as server:
        await (await server.connect()).register(slave)
        tables = server.namesrv.manager.tables
        await server.clock.advance(34)
        assert tables.write_removed.keys() == {"broker-a", "broker-b"}
        await server.clock.advance(3)
        assert tables.write_removed.keys() == {"broker-b"}
