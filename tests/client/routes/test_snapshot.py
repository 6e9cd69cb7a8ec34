"""Routes survive the process, and nothing but what was written is ever used."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import Route, RouteUnavailableError
from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.snapshot import RouteSnapshot, RouteSnapshotError
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_runtime.durable_file import write_sealed
from tests.support.dead_ends import refusing_port
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.route_clients import (
    BROKER_A,
    BROKER_B,
    RouteScene,
    broker_names,
    group,
    queues,
    route_client,
    route_scene,
    topic_route,
    unregister,
)

ROUTES = [
    Route("orders", topic_route("broker-a", "broker-b"), "disk", 90.0),
    Route("bills", topic_route("broker-a"), "disk", 100.0),
]


def snapshot_at(path: Path, monotonic: float = 100.0, wall: float = 1_000.0) -> RouteSnapshot:
    """The file of a client that knows nothing yet."""
    clock = FakeClock(monotonic=monotonic, wall=wall)
    return RouteSnapshot(path, clock, RouteCache(clock))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where nothing was written yet."""
    return tmp_path / "routes.json"


@pytest.fixture
def snapshot(path: Path) -> RouteSnapshot:
    """The file there, at 100 seconds."""
    return snapshot_at(path)


def test_what_was_saved_is_loaded(snapshot: RouteSnapshot) -> None:
    """Everything in a route, names in any script, and the time of the last confirmation."""
    mapping = TopicQueueMappingInfo("t", "broker-a", "__global__", 3, 2, curr_id_map={0: 5, 1: 6})
    data = TopicRouteData(
        [group("broker-a", 0, 1, zone="süd")],
        [queues("broker-a")],
        {"10.0.0.1:10911": ["f1", "f2"]},
        "broker-a:4",
        {"broker-a": mapping},
    )
    routes = [*ROUTES, Route("заказы", data, "disk", 1.5)]
    assert snapshot.read() == []

    snapshot.write(routes)

    assert routes == snapshot.read()


@pytest.mark.parametrize(("wall", "expected"), [(1_060.0, [-65.0, -55.0]), (10.0, [5.0, 5.0])])
def test_ages_go_on_while_no_process_runs(tmp_path: Path, wall: float, expected: list[float]) -> None:
    """The next process has another monotonic clock; one that was set back makes nothing younger than new."""
    snapshot_at(tmp_path / "r").write(ROUTES)

    loaded = snapshot_at(tmp_path / "r", 5.0, wall).read()

    assert expected == [route.confirmed_at for route in loaded]


def test_a_route_that_many_topics_share_is_written_once(snapshot: RouteSnapshot, path: Path) -> None:
    """Ten thousand topics on the same brokers make a file of a few hundred kilobytes."""
    data = topic_route(*(f"broker-{letter}" for letter in "abcdefgh"))

    snapshot.write(Route(f"topic-{number:05}", data, "pull", 1.0) for number in range(10_000))

    assert path.stat().st_size < 400_000
    loaded = snapshot.read()
    assert (len(loaded), len({id(route.data) for route in loaded})) == (10_000, 1)


def test_a_file_of_somebody_else_is_not_used(
    snapshot: RouteSnapshot, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routes decide where messages go."""
    snapshot.write(ROUTES)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(RouteSnapshotError, match=f"routes.json cannot be read: it belongs to user {owner}"):
        snapshot.read()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(snapshot: RouteSnapshot, path: Path, mode: int) -> None:
    """Its checksum is no secret."""
    snapshot.write(ROUTES)
    path.chmod(mode)

    with pytest.raises(RouteSnapshotError, match=f"others can write to it: mode {mode:o}"):
        snapshot.read()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """The error says in words what stands in its place."""
    for name, make, problem in (
        ("pipe", os.mkfifo, "not a file"),
        ("folder", os.mkdir, "Is a directory"),
        ("loop", lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ):
        make(tmp_path / name)
        with pytest.raises(RouteSnapshotError, match=problem):
            snapshot_at(tmp_path / name).read()
    with pytest.raises(IsADirectoryError):
        snapshot_at(tmp_path / "folder").write(ROUTES)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"version": 2, "routes": [], "topics": {}},
        {"version": 1},
        {"version": 1, "routes": [], "topics": []},
        {"version": 1, "routes": [3], "topics": {}},
        {"version": 1, "routes": [], "topics": {"t": [0, 1.0]}},
        {"version": 1, "routes": [{}], "topics": {"t": [0]}},
        {"version": 1, "routes": [{}], "topics": {"t": [0, "late"]}},
        {"version": 1, "routes": [{}], "topics": {"t": ["a", 1.0]}},
    ],
)
def test_damage_and_content_of_another_kind_are_refused(
    snapshot: RouteSnapshot, path: Path, content: dict[str, object]
) -> None:
    """A torn file; and one by the right checksum and a wrong program."""
    write_sealed(path, content)

    with pytest.raises(RouteSnapshotError, match="cannot be read"):
        snapshot.read()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RouteSnapshotError, match=f"^{path} cannot be read: truncated or not a sealed file"):
        snapshot.read()


def saved(path: Path) -> dict[str, float]:
    """Topic -> when it was confirmed (wall clock); empty as long as there is no file."""
    found = json.loads(path.read_bytes())["content"]["topics"] if path.exists() else {}
    return {topic: confirmed for topic, (_, confirmed) in found.items()}


async def written(scene: RouteScene, seconds: float) -> None:
    """Let time pass until the client writes, and return when its thread is done."""
    saving: Any = next(task.get_coro() for task in scene.client._tasks if "RouteSnapshot.run" in repr(task))
    await scene.clock.advance(seconds)
    # it waits for the clock again
    await until(lambda: saving.cr_await.__name__ == "sleep")


async def test_a_process_that_starts_while_all_servers_are_down_has_routes(tmp_path: Path) -> None:
    """Those of the process before, with their age, until a server says something else; the rest stays unknown."""
    snapshot = tmp_path / "routes.json"
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], snapshot_file=snapshot) as scene:
        clock, stopped = scene.clock, scene.clock.monotonic()
        await scene.client.route("orders")
        await scene.client.__aexit__(None, None, None)
        await unregister(scene.peers[0], BROKER_B)
        with refusing_port() as nobody:
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            clock.stall(30.0)
            async with route_client(clock, address, snapshot_file=snapshot) as client:
                known = await client.route("orders")
                assert (known.source, list(known.brokers)) == ("disk", ["broker-a", "broker-b"])
                assert clock.monotonic() - stopped == pytest.approx(known.age, abs=0.01)
                assert client.master_of("broker-a") == "10.0.0.1:10911"
                assert (await client.select_queue("orders")).broker_name in known.brokers
                for asking in (client.route("bills"), client.route("orders", max_stale=20.0)):
                    with pytest.raises(RouteUnavailableError):
                        await asking

        async with route_client(clock, scene.server, snapshot_file=snapshot) as client:
            assert (await client.route("orders")).source == "disk"
            await passing(clock, lambda: broker_names(client) == ["broker-a"], at_most=15.5)
            assert (await client.route("orders")).source == "pull"


async def test_the_file_is_written_after_changes_and_now_and_then(tmp_path: Path) -> None:
    """Five seconds after a change; every five minutes, and at the end, because a confirmed route is no old route."""
    snapshot = tmp_path / "routes.json"
    async with route_scene(tmp_path, expiry_seconds=86_400, snapshot_file=snapshot, poll_seconds=1000.0) as scene:
        began = scene.clock.wall()
        await scene.client.route("orders")
        await written(scene, 4.9)
        assert saved(snapshot) == {}
        await written(scene, 0.1)
        assert {"orders": began} == saved(snapshot)

        await scene.clock.advance(295.0)
        assert await scene.client.refresh()
        assert {"orders": began} == saved(snapshot)
        await written(scene, 5.0)
        assert {"orders": began + 300.0} == saved(snapshot)

        scene.clock.stall(60.0)
        assert await scene.client.refresh()
        confirmed = scene.clock.wall()
        await scene.client.__aexit__(None, None, None)
        assert {"orders": confirmed} == saved(snapshot)


async def test_a_file_that_cannot_be_used_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is damaged when it is read, which a client that knows nothing leaves alone; or a directory's absence."""
    snapshot = tmp_path / "later" / "routes.json"
    async with route_scene(tmp_path, snapshot_file=snapshot) as scene:
        await scene.client.route("orders")
        for _ in range(3):
            await written(scene, 5.0)
        assert caplog.text.count("route snapshot not written") == 1
        assert " | changed]>" in repr(scene.client._snapshot)
        snapshot.parent.mkdir()
        await written(scene, 5.0)
        assert list(saved(snapshot)) == ["orders"]
        assert " | saved]>" in repr(scene.client._snapshot)

    snapshot.write_bytes(b'{"sha256":"')
    async with route_client(FakeClock(), "127.0.0.1:1", snapshot_file=snapshot):
        assert "route snapshot not used" in caplog.text
    assert snapshot.read_bytes() == b'{"sha256":"'
