"""Routes are on disk when a process starts while every NameServer is down."""

import json
from pathlib import Path

import pytest

from namesrv_client import RouteUnavailableError
from tests.support.dead_ends import refusing_port
from tests.support.fake_clock import FakeClock
from tests.support.in_process import namesrv_in_process
from tests.support.passing_time import passing
from tests.support.raw_peer import until
from tests.support.route_clients import BROKER_A, BROKER_B, broker_names, registered, route_client, unregister


def saved(path: Path) -> dict[str, float]:
    """Topic -> when it was confirmed (wall clock); empty as long as there is no file."""
    if not path.exists():
        return {}
    return {topic: entry[1] for topic, entry in json.loads(path.read_bytes())["content"]["topics"].items()}


async def written(clock: FakeClock, seconds: float) -> None:
    """Let time pass until the client writes, and return when its thread is done."""
    sleepers = clock.sleepers
    await clock.advance(seconds)
    await until(lambda: clock.sleepers == sleepers)


async def test_a_process_that_starts_while_all_servers_are_down_has_routes(tmp_path: Path) -> None:
    """Those of the process before, with their age; what it did not know stays unknown."""
    clock, snapshot = FakeClock(), tmp_path / "routes.json"
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        await registered(server, BROKER_A, BROKER_B)
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            await client.route("orders")
    clock.stall(3600.0)

    with refusing_port() as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        async with route_client(clock, address, snapshot_file=snapshot) as client:
            known = await client.route("orders")
            assert ("disk", ["broker-a", "broker-b"]) == (known.source, list(known.brokers))
            assert 3600.0 <= known.age
            assert "10.0.0.1:10911" == client.master_of("broker-a")
            assert (await client.select_queue("orders")).broker_name in known.brokers
            with pytest.raises(RouteUnavailableError):
                await client.route("bills")
            with pytest.raises(RouteUnavailableError):
                await client.route("orders", max_stale=60.0)


async def test_routes_from_disk_are_replaced_by_what_a_server_says(tmp_path: Path) -> None:
    """With the first poll; a topic that is used from disk is polled."""
    clock, snapshot = FakeClock(), tmp_path / "routes.json"
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        peer = await registered(server, BROKER_A, BROKER_B)
        clock.stall(60.0)
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            await client.route("orders")
        await unregister(peer, BROKER_B)

        async with route_client(clock, server, snapshot_file=snapshot) as client:
            assert "disk" == (await client.route("orders")).source
            await passing(clock, lambda: broker_names(client) == ["broker-a"], at_most=15.5)
            assert "pull" == (await client.route("orders")).source


async def test_a_change_is_on_disk_five_seconds_later(tmp_path: Path) -> None:
    """A process that is killed has lost little."""
    clock, snapshot = FakeClock(), tmp_path / "routes.json"
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            await client.route("orders")
            await clock.advance(4.9)
            assert {} == saved(snapshot)

            await written(clock, 0.1)
            assert ["orders"] == list(saved(snapshot))


async def test_a_route_that_never_changes_does_not_look_old(tmp_path: Path) -> None:
    """It is confirmed at every poll; every five minutes, and at the end, the file says so."""
    clock, snapshot = FakeClock(monotonic=1_000.0, wall=5_000.0), tmp_path / "routes.json"
    async with namesrv_in_process(tmp_path / "data", clock=clock, broker_expiry_seconds=86_400) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, server, snapshot_file=snapshot, poll_seconds=1000.0) as client:
            await client.route("orders")
            await written(clock, 5.0)
            assert {"orders": 5_000.0} == saved(snapshot)

            await clock.advance(295.0)
            assert await client.refresh()
            assert {"orders": 5_000.0} == saved(snapshot)
            await written(clock, 5.0)
            assert {"orders": 5_300.0} == saved(snapshot)

            clock.stall(60.0)
            assert await client.refresh()
            confirmed = clock.wall()
        assert {"orders": confirmed} == saved(snapshot)


async def test_a_damaged_file_is_not_used_and_the_next_one_is_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs a warning."""
    clock, snapshot = FakeClock(), tmp_path / "routes.json"
    snapshot.write_bytes(b'{"sha256":"')
    snapshot.chmod(0o600)
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            assert "route snapshot not used" in caplog.text
            await client.route("orders")
    assert ["orders"] == list(saved(snapshot))


async def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory may be mounted later."""
    clock, snapshot = FakeClock(), tmp_path / "later" / "routes.json"
    async with namesrv_in_process(tmp_path / "data", clock=clock) as server:
        await registered(server, BROKER_A)
        async with route_client(clock, server, snapshot_file=snapshot) as client:
            await client.route("orders")
            for _ in range(3):
                await written(clock, 5.0)
            assert 1 == caplog.text.count("route snapshot not written")
            assert "routes.json | changed" in repr(client._saver)

            snapshot.parent.mkdir()
            await written(clock, 5.0)
            assert ["orders"] == list(saved(snapshot))
            assert "routes.json | saved" in repr(client._saver)


async def test_a_client_that_knows_nothing_leaves_the_file_alone(tmp_path: Path) -> None:
    """There may be one that it could not read."""
    snapshot = tmp_path / "routes.json"

    async with route_client(FakeClock(), "127.0.0.1:1", snapshot_file=snapshot):
        pass

    assert not snapshot.exists()
