"""When the snapshot of expected brokers is written, and what happens if it cannot be."""

import logging
from pathlib import Path
from typing import Any

import pytest

from namesrv.state import snapshot
from namesrv.state.snapshot import ExpectedBroker, WipedBroker
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.raw_peer import until

A = Broker()
B = Broker("broker-b", 0, "10.0.0.2:10911")
EXPECTED_A = ExpectedBroker("cluster-1", "broker-a", 0, "10.0.0.1:10911")
EXPECTED_B = ExpectedBroker("cluster-1", "broker-b", 0, "10.0.0.2:10911")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """What the snapshotter logs, as level and name with fields; grows."""
    caplog.set_level(logging.DEBUG)
    found: list[tuple[str, dict[str, Any]]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append((f"{record.levelname} {record.msg}", vars(record)["fields"]))

    logger = logging.getLogger("namesrv.server.snapshotter")
    logger.handlers = [Handler()]
    return found


def brokers(data_dir: Path) -> tuple[ExpectedBroker, ...]:
    """Who is in the file."""
    loaded = snapshot.load(data_dir / "snapshot.json")
    return () if loaded is None else loaded.brokers


async def tick(server: InProcess, log: list[Any]) -> None:
    """Five seconds pass, and something is logged."""
    count = len(log)
    await server.clock.advance(5)
    await until(lambda: len(log) > count)


async def test_snapshot_is_written_within_five_seconds(tmp_path: Path, log: list[Any]) -> None:
    """After a broker came, after one left; nothing is written while nobody does."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(B)
        await peer.register(A)
        await server.clock.advance(4.9)
        assert [] == log
        await tick(server, log)
        assert (EXPECTED_A, EXPECTED_B) == brokers(tmp_path)

        await peer.register(A)
        await peer.call(904, B.ext)
        await server.clock.advance(20)
        assert 1 == len(log)

        await peer.call(104, B.ext)
        await tick(server, log)
        assert (EXPECTED_A,) == brokers(tmp_path)
    path = tmp_path / "snapshot.json"
    written = [("DEBUG snapshot_written", {"path": path, "brokers": count}) for count in (2, 1)]
    assert written == log


async def test_snapshot_is_written_at_the_end(tmp_path: Path) -> None:
    """At once, before anybody is sent away."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A)
        boot_id = server.namesrv.boot_id

    loaded = snapshot.load(tmp_path / "snapshot.json")
    assert loaded is not None
    assert ((EXPECTED_A,), boot_id, 1_700_000_000_000) == (loaded.brokers, loaded.boot_id, loaded.saved_ms)


async def test_snapshot_knows_whose_permission_was_wiped(tmp_path: Path, log: list[Any]) -> None:
    """As long as it is."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (B, A):
            await peer.register(broker)
            await peer.call(205, {"brokerName": broker.name})
        await tick(server, log)
        loaded = snapshot.load(tmp_path / "snapshot.json")
        assert loaded is not None
        assert (WipedBroker(None, "broker-a"), WipedBroker(None, "broker-b")) == loaded.wiped

        await peer.call(327, {"brokerName": "broker-a"})
        await tick(server, log)
        loaded = snapshot.load(tmp_path / "snapshot.json")
        assert loaded is not None
        assert (WipedBroker(None, "broker-b"),) == loaded.wiped


async def test_who_is_missing_is_still_expected_until_the_gate_opens(tmp_path: Path, log: list[Any]) -> None:
    """A server that crashes while it waits must not forget for whom; one that comes back elsewhere is there once."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for broker in (A, B):
            await peer.register(broker)
    log.clear()

    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A._replace(addr="10.9.9.9:10911"))
        await tick(server, log)
        moved = ExpectedBroker("cluster-1", "broker-a", 0, "10.9.9.9:10911")
        assert (moved, EXPECTED_B) == brokers(tmp_path)

        await server.clock.advance(45)
        await until(lambda: len(log) == 2)
        assert (moved,) == brokers(tmp_path)


async def test_snapshot_that_cannot_be_written_is_tried_again(tmp_path: Path, log: list[Any]) -> None:
    """One error when it begins and one line when it is over, however often it fails in between."""
    path = tmp_path / "snapshot.json"
    async with namesrv_in_process(tmp_path) as server:
        # a directory cannot be replaced by a file, whoever tries
        path.mkdir()
        peer = await server.connect()
        await peer.register(A)
        await tick(server, log)
        await server.clock.advance(20)
        ((name, fields),) = log
        assert ("ERROR snapshot_not_written", path) == (name, fields["path"])
        assert "Is a directory" in str(fields["error"])

        path.rmdir()
        await tick(server, log)
        await until(lambda: len(log) == 3)

        assert ["INFO snapshot_written_again", "DEBUG snapshot_written"] == [name for name, _ in log[1:]]
        assert (EXPECTED_A,) == brokers(tmp_path)
        assert 0 == (await peer.call(105, {"topic": "T"})).code


async def test_server_that_cannot_write_ends_in_good_order(tmp_path: Path, log: list[Any]) -> None:
    """What it could not write costs the next start its wait, and nothing else."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(A)
        (tmp_path / "snapshot.json").mkdir()
    assert ["ERROR snapshot_not_written"] == [name for name, _ in log]


async def test_last_snapshot_waits_for_the_one_before(tmp_path: Path, log: list[Any]) -> None:
    """The server ends while the disk is slow: what replaces the file last is the newest."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for number in range(20):
            await peer.register(Broker(f"broker-{number:02}", 0, f"10.0.0.1:{number + 1}"))
            # a write begins with each, and none is waited for
            await server.clock.advance(5)
    assert 20 == len(brokers(tmp_path))
