"""Snapshots of routes on disk."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from namesrv_client import Route, RouteUnavailableError
from namesrv_client.routes.cache import KnownRoutes
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
from tests.support.threads import without_new_threads

ROUTES = [
    Route("orders", topic_route("broker-a", "broker-b"), "disk", 90.0),
    Route("bills", topic_route("broker-a"), "disk", 100.0),
]


def snapshot_at(path: Path, monotonic: float = 100.0, wall: float = 1_000.0) -> RouteSnapshot:
    """The snapshot of a client with an empty cache."""
    clock = FakeClock(monotonic=monotonic, wall=wall)
    return RouteSnapshot(path, clock, KnownRoutes(clock))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path without a file."""
    return tmp_path / "routes.json"


@pytest.fixture
def snapshot(path: Path) -> RouteSnapshot:
    """A snapshot at this path, at 100 seconds."""
    return snapshot_at(path)


def test_saved_routes_are_loaded(snapshot: RouteSnapshot) -> None:
    """A snapshot keeps every field of a route, names in any script, and the time of the last confirmation."""
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

    assert snapshot.read() == routes


@pytest.mark.parametrize(("wall", "expected"), [(1_060.0, [-65.0, -55.0]), (995.0, [-5.0, 5.0]), (10.0, [-5.0, 5.0])])
def test_ages_grow_while_no_process_runs(tmp_path: Path, wall: float, expected: list[float]) -> None:
    """Ages follow the wall clock between processes; a clock set back makes no route younger than in the file."""
    snapshot_at(tmp_path / "r").write(ROUTES)

    loaded = snapshot_at(tmp_path / "r", 5.0, wall).read()

    assert [route.confirmed_at for route in loaded] == expected


@pytest.mark.parametrize(("written", "read"), [("a", "b"), (None, "a"), ("a", None)])
def test_file_of_another_zone_is_not_used(path: Path, written: str | None, read: str | None) -> None:
    """The routes of another zone have brokers that this client must not use, or lack brokers of its zone."""
    cache = KnownRoutes(clock := FakeClock())
    RouteSnapshot(path, clock, cache, written).write(ROUTES)
    assert RouteSnapshot(path, clock, cache, written).read() == ROUTES

    with pytest.raises(RouteSnapshotError, match=f"routes.json cannot be read: it is for zone {written}, not {read}"):
        RouteSnapshot(path, clock, cache, read).read()


def test_shared_route_is_written_once(snapshot: RouteSnapshot, path: Path) -> None:
    """10,000 topics on the same brokers make a file of less than 400 kB."""
    data = topic_route(*(f"broker-{letter}" for letter in "abcdefgh"))

    snapshot.write(Route(f"topic-{number:05}", data, "pull", 1.0) for number in range(10_000))

    assert path.stat().st_size < 400_000
    loaded = snapshot.read()
    assert (len(loaded), len({id(route.data) for route in loaded})) == (10_000, 1)


def test_file_of_another_user_is_not_used(snapshot: RouteSnapshot, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes decide where messages go, so that only the user's own file counts."""
    snapshot.write(ROUTES)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(RouteSnapshotError, match=f"routes.json cannot be read: it belongs to user {owner}"):
        snapshot.read()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_writable_by_others_is_not_used(snapshot: RouteSnapshot, path: Path, mode: int) -> None:
    """The checksum does not protect against another user."""
    snapshot.write(ROUTES)
    path.chmod(mode)

    with pytest.raises(RouteSnapshotError, match=f"others can write to it: mode {mode:o}"):
        snapshot.read()


def open_descriptors(path: Path) -> list[Path]:
    """The descriptors of this process that are open for the file at this path."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # Other threads, and the listing itself, close descriptors meanwhile.
        with suppress(FileNotFoundError):
            links.append((descriptor, descriptor.readlink()))
    return [descriptor for descriptor, link in links if link == path]


def test_pipe_or_directory_is_an_error(tmp_path: Path) -> None:
    """The error names a pipe, a directory or a loop of links, and no file stays open."""
    for name, make, problem in (
        ("pipe", os.mkfifo, "not a file"),
        ("folder", os.mkdir, r"Is a directory: '.*/folder'$"),
        ("loop", lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ):
        make(tmp_path / name)
        with pytest.raises(RouteSnapshotError, match=problem):
            snapshot_at(tmp_path / name).read()
        assert open_descriptors(tmp_path / name) == []
    with pytest.raises(IsADirectoryError):
        snapshot_at(tmp_path / "folder").write(ROUTES)


@pytest.mark.parametrize(
    "content",
    [
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
def test_invalid_content_is_refused(snapshot: RouteSnapshot, path: Path, content: dict[str, object]) -> None:
    """Content of another shape is refused."""
    write_sealed(path, content)

    with pytest.raises(RouteSnapshotError, match=f"^{path} cannot be read: "):
        snapshot.read()


def saved(path: Path) -> dict[str, float]:
    """Topic -> wall time of its confirmation; empty without a file."""
    found = json.loads(path.read_bytes())["content"]["topics"] if path.exists() else {}
    return {topic: confirmed for topic, (_, confirmed) in found.items()}


async def written(scene: RouteScene, seconds: float) -> None:
    """Advance the clock until the client writes; return when its thread is done."""
    saving: Any = next(task.get_coro() for task in scene.client._lifecycle._tasks if "RouteSnapshot.run" in repr(task))
    await scene.clock.advance(seconds)
    # the task waits for the clock again
    await until(lambda: saving.cr_await.__name__ == "sleep")


async def test_routes_are_loaded_while_all_servers_are_down(tmp_path: Path) -> None:
    """Routes of the previous process are served with their age until a server responds; other topics are unknown."""
    snapshot = tmp_path / "routes.json"
    async with route_scene(tmp_path, [BROKER_A, BROKER_B], snapshot_file=snapshot) as scene:
        clock, stopped = scene.clock, scene.clock.monotonic()
        await scene.client.route("orders")
        await scene.client.__aexit__(None, None, None)
        await unregister(scene.peers[0], BROKER_B)
        with refusing_port() as bound:
            address = f"127.0.0.1:{bound.getsockname()[1]}"
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


async def test_snapshot_is_written_after_changes_and_periodically(tmp_path: Path) -> None:
    """The file is written 5 s after a change, every 5 minutes, and at the end."""
    snapshot = tmp_path / "routes.json"
    async with route_scene(tmp_path, expiry_seconds=86_400, snapshot_file=snapshot, poll_seconds=1000.0) as scene:
        began = scene.clock.wall()
        await scene.client.route("orders")
        await written(scene, 4.9)
        assert saved(snapshot) == {}
        await written(scene, 0.1)
        assert saved(snapshot) == {"orders": began}

        await scene.clock.advance(295.0)
        assert await scene.client.refresh()
        assert saved(snapshot) == {"orders": began}
        await written(scene, 5.0)
        assert saved(snapshot) == {"orders": began + 300.0}

        scene.clock.stall(60.0)
        assert await scene.client.refresh()
        confirmed = scene.clock.wall()
        await scene.client.__aexit__(None, None, None)
        assert saved(snapshot) == {"orders": confirmed}


async def test_forgotten_topics_leave_the_snapshot(tmp_path: Path) -> None:
    """This includes the last one, after which the file has no route."""
    snapshot = tmp_path / "routes.json"
    async with route_scene(tmp_path, snapshot_file=snapshot) as scene:
        for topic in ("orders", "bills"):
            await scene.client.route(topic)
        await written(scene, 5.0)
        scene.client.forget("bills")
        await written(scene, 5.0)
        assert list(saved(snapshot)) == ["orders"]
        scene.client.forget("orders")
    assert saved(snapshot) == {}


async def test_snapshot_is_written_when_threads_can_be_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A write needs a thread; without one the client logs a warning and tries again."""
    path = tmp_path / "routes.json"
    cache = KnownRoutes(clock := FakeClock())
    cache.restore(ROUTES)
    snapshot = RouteSnapshot(path, clock, cache)
    with without_new_threads():
        await snapshot.save()
    assert "route snapshot not written: can't start new thread" in caplog.text
    await snapshot.save()
    assert sorted(saved(path)) == ["bills", "orders"]


async def test_client_starts_without_a_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The snapshot is read in a thread; without one the client starts without routes, and logs a warning."""
    path = tmp_path / "routes.json"
    snapshot_at(path).write(ROUTES)
    with without_new_threads():
        async with route_client(FakeClock(), "127.0.0.1:1", snapshot_file=path) as client:
            assert broker_names(client) is None
    assert "route snapshot not used: can't start new thread" in caplog.text


async def test_unusable_file_is_logged_once_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing directory is retried; a damaged file is reported and stays as it is."""
    snapshot = tmp_path / "later" / "routes.json"
    async with route_scene(tmp_path, snapshot_file=snapshot) as scene:
        await scene.client.route("orders")
        for _ in range(3):
            await written(scene, 5.0)
        assert caplog.text.count("route snapshot not written") == 1
        assert " | changed]>" in repr(scene.client._observers._snapshot)
        snapshot.parent.mkdir()
        await written(scene, 5.0)
        assert list(saved(snapshot)) == ["orders"]
        assert " | saved]>" in repr(scene.client._observers._snapshot)

    snapshot.write_bytes(b'{"sha256":"')
    async with route_client(FakeClock(), "127.0.0.1:1", snapshot_file=snapshot):
        assert "route snapshot not used" in caplog.text
    assert snapshot.read_bytes() == b'{"sha256":"'
