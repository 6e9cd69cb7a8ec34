"""The heat map: the state of each broker on each server."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from namesrv_client.ctl.comparison import PRESENT, Difference
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement, Reason
from namesrv_console.views.heat import Heat, fewer_groups, heat_map
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo

KEY = BrokerKey("c1", "broker-a", 0)
OTHER = BrokerKey("c1", "broker-b", 1)


def view(address: str, brokers: Mapping[BrokerKey, tuple[float, float] | None]) -> ServerView:
    """A ready server; each broker has the times of its last heartbeat and its eviction, None if they are unknown."""
    info = ServerInfo("boot", ready=True)
    seen = {
        key: BrokerSeen(LiveBroker(*key, "10.0.0.1:10911"), *(times or (None, None))) for key, times in brokers.items()
    }
    return ServerView(address, answered_at=0.0, info=info, brokers=seen)


def heats(*views: ServerView, now: float | None = 0.0, key: BrokerKey = KEY) -> list[Heat]:
    """The heat of a broker on each server."""
    found = heat_map(Cluster(1, views), [KEY], [], now)
    return [cell.heat for cell in found[key.cluster][key.broker_name][key.broker_id]]


@pytest.mark.parametrize(
    ("now", "heat"),
    [
        (1000.0, "in_time"),
        (1036.0, "in_time"),
        (1036.1, "late"),
        (1090.0, "late"),
        (1090.1, "dying"),
        (1130.0, "dying"),
        (None, "in_time"),
    ],
)
def test_colour_is_the_age_over_the_expiry(now: float | None, heat: Heat) -> None:
    """A heartbeat is late at 30 % of the expiry, 120 s here, and its broker close to eviction at 75 %."""
    assert heats(view("s1", {KEY: (1000.0, 1120.0)}), now=now) == [heat]


def test_each_server_has_a_cell_of_its_own() -> None:
    """A server that lacks the broker differs from one that is unreachable, not asked yet, or denies the request."""
    here, absent = view("s1", {KEY: (0.0, 120.0)}), view("s2", {})
    lost = here.lost("timeout", 5.0)
    refusing, not_ready = (
        replace(absent, refused={"brokers": "access denied"}),
        replace(absent, info=ServerInfo("boot", ready=False)),
    )

    apache = view("apache", {KEY: None})
    found = heats(here, absent, lost, ServerView("s3"), refusing, not_ready, apache, apache.lost("timeout", 5.0))

    assert found == ["in_time", "missing", "frozen", "unknown", "unknown", "unknown", "ageless", "unknown"]


def test_brokers_are_blocks_by_cluster_and_group() -> None:
    """Clusters, groups and instances are sorted, and a broker that left all servers is missing on each."""
    slave, far = BrokerKey("c1", "broker-b", 2), BrokerKey("c0", "z", 0)
    views = view("s1", {slave: (0.0, 120.0), OTHER: (0.0, 120.0)}), view("s2", {far: (0.0, 120.0)})

    found = heat_map(Cluster(1, views), [KEY], [], 0.0)

    shape = {cluster: {name: [*ids] for name, ids in groups.items()} for cluster, groups in found.items()}
    assert shape == {"c0": {"z": [0]}, "c1": {"broker-a": [0], "broker-b": [1, 2]}}
    assert heats(*views) == ["missing", "missing"]
    assert heats(*views, key=OTHER) == ["in_time", "missing"]


@pytest.mark.parametrize(
    ("reason", "blamed", "lacking"),
    [
        (None, [], ["missing", "missing"]),
        ("registering", [], ["awaited", "awaited"]),
        ("leaving", [], ["awaited", "awaited"]),
        # A server that has started does not excuse another one that lacks the broker, too.
        (None, ["s3"], ["missing", "awaited"]),
    ],
)
def test_expected_absence_is_shown_as_awaited(reason: Reason | None, blamed: list[str], lacking: list[Heat]) -> None:
    """A broker that is about to register with a server, or to leave the others, is not shown as missing."""
    views = view("s1", {KEY: (0.0, 120.0)}), view("s2", {}), view("s3", {})
    difference = Difference("broker", "/".join(map(str, KEY)), PRESENT, {"s1": True, "s2": False, "s3": False})

    found = heat_map(Cluster(1, views), [], [Disagreement(difference, 1.0, reason, frozenset(blamed))], 0.0)

    cells = found[KEY.cluster][KEY.broker_name][KEY.broker_id]
    assert [cell.heat for cell in cells] == ["in_time", *lacking]


def test_large_heat_map_keeps_the_groups_with_problems() -> None:
    """Missing and unknown brokers are kept before those with heartbeats, in the order of their names."""
    names = ("a", "b", "c", "d")
    brokers: dict[BrokerKey, tuple[float, float] | None] = {BrokerKey("c1", name, 0): (0.0, 120.0) for name in names}
    lacking = {key: times for key, times in brokers.items() if key.broker_name != "d"}
    heat = heat_map(Cluster(1, (view("s1", brokers), view("s2", lacking))), [], [], 0.0)

    fewer, left_out = fewer_groups(heat, 2)
    assert ([*fewer["c1"]], left_out) == (["a", "d"], 2)
    assert fewer_groups(heat, 4) == (heat, 0)
