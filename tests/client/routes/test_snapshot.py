"""Routes survive the process, and nothing but what was written is ever used."""

import os
from pathlib import Path

import pytest

from namesrv_client.routes.cache import SavedRoute
from namesrv_client.routes.snapshot import RouteSnapshot, RouteSnapshotError
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_runtime.sealed_file import write_sealed
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, queues, topic_route

ROUTES = [
    SavedRoute("orders", topic_route("broker-a", "broker-b"), 90.0),
    SavedRoute("bills", topic_route("broker-a"), 100.0),
]


@pytest.fixture
def clock() -> FakeClock:
    """At 100 seconds."""
    return FakeClock(monotonic=100.0)


@pytest.fixture
def snapshot(tmp_path: Path, clock: FakeClock) -> RouteSnapshot:
    """One that was not written yet."""
    return RouteSnapshot(tmp_path / "routes.json", clock)


def test_what_was_saved_is_loaded(snapshot: RouteSnapshot) -> None:
    """With the times of the last confirmations."""
    snapshot.save(ROUTES)

    assert ROUTES == snapshot.load()


def test_everything_in_a_route_is_kept(snapshot: RouteSnapshot) -> None:
    """Slaves, zones, filter servers, order configurations, static topics, and names in any script."""
    mapping = TopicQueueMappingInfo("t", "broker-a", "__global__", 3, 2, curr_id_map={0: 5, 1: 6})
    route = TopicRouteData(
        [group("broker-a", 0, 1, zone="süd")],
        [queues("broker-a")],
        {"10.0.0.1:10911": ["f1", "f2"]},
        "broker-a:4",
        {"broker-a": mapping},
    )

    snapshot.save([SavedRoute("заказы", route, 1.5)])

    assert [SavedRoute("заказы", route, 1.5)] == snapshot.load()


def test_ages_go_on_while_no_process_runs(tmp_path: Path) -> None:
    """The next process has another monotonic clock; the wall clock tells how long it was away."""
    RouteSnapshot(tmp_path / "r", FakeClock(monotonic=100.0, wall=1_000.0)).save(ROUTES)

    [orders, bills] = RouteSnapshot(tmp_path / "r", FakeClock(monotonic=5.0, wall=1_060.0)).load()

    assert (-65.0, -55.0) == (orders.confirmed_at, bills.confirmed_at)


def test_a_wall_clock_that_was_set_back_makes_nothing_younger_than_new(tmp_path: Path) -> None:
    """Confirmed in the future is confirmed now."""
    RouteSnapshot(tmp_path / "r", FakeClock(monotonic=100.0, wall=1_000.0)).save(ROUTES)

    loaded = RouteSnapshot(tmp_path / "r", FakeClock(monotonic=5.0, wall=10.0)).load()

    assert [5.0, 5.0] == [saved.confirmed_at for saved in loaded]


def test_no_file_is_no_routes(snapshot: RouteSnapshot) -> None:
    """The first start of all."""
    assert [] == snapshot.load()


def test_a_route_that_many_topics_share_is_written_once(snapshot: RouteSnapshot) -> None:
    """Ten thousand topics on the same brokers make a file of a few hundred kilobytes."""
    route = topic_route(*(f"broker-{letter}" for letter in "abcdefgh"))

    snapshot.save([SavedRoute(f"topic-{number:05}", route, 1.0) for number in range(10_000)])

    assert 400_000 > snapshot.path.stat().st_size
    loaded = snapshot.load()
    assert (10_000, 1) == (len(loaded), len({id(saved.data) for saved in loaded}))


# -- who may read and write it ----------------------------------------------------------------------------------------


def test_a_file_of_somebody_else_is_not_used(snapshot: RouteSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes decide where messages go."""
    snapshot.save(ROUTES)
    owner = snapshot.path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(RouteSnapshotError, match=f"routes.json belongs to user {owner}"):
        snapshot.load()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(snapshot: RouteSnapshot, mode: int) -> None:
    """Its checksum is no secret."""
    snapshot.save(ROUTES)
    snapshot.path.chmod(mode)

    with pytest.raises(RouteSnapshotError, match=f"can be written by others: mode {mode:o}"):
        snapshot.load()


def test_a_pipe_in_its_place_is_not_waited_for(snapshot: RouteSnapshot) -> None:
    """Nor anything else that is not a file."""
    os.mkfifo(snapshot.path, 0o600)

    with pytest.raises(RouteSnapshotError, match="is not a file"):
        snapshot.load()


def test_a_directory_in_its_place_is_an_error(snapshot: RouteSnapshot) -> None:
    """Reading and writing."""
    snapshot.path.mkdir()

    with pytest.raises(RouteSnapshotError):
        snapshot.load()
    with pytest.raises(IsADirectoryError):
        snapshot.save(ROUTES)


def test_a_file_that_may_not_be_read_is_an_error(snapshot: RouteSnapshot) -> None:
    """With its reason in words."""
    loop = snapshot.path.with_name("loop")
    loop.symlink_to(loop)

    with pytest.raises(RouteSnapshotError, match="Too many levels of symbolic links"):
        RouteSnapshot(loop, snapshot.clock).load()


# -- damage -----------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_not_used(snapshot: RouteSnapshot) -> None:
    """And named, with what is wrong with it."""
    snapshot.save(ROUTES)
    snapshot.path.write_bytes(snapshot.path.read_bytes()[:-1])

    with pytest.raises(RouteSnapshotError, match=f"^{snapshot.path} cannot be read: truncated or not a sealed file"):
        snapshot.load()


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
def test_content_of_another_kind_is_refused(snapshot: RouteSnapshot, content: dict[str, object]) -> None:
    """By the right checksum and a wrong program."""
    write_sealed(snapshot.path, content)

    with pytest.raises(RouteSnapshotError, match="cannot be read"):
        snapshot.load()
