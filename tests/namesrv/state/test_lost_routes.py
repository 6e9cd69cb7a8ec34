"""The ring of lost routes."""

import pytest

from namesrv.routeinfo.tables.effects import Evicted, RouteChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.state.lost_routes import LostRoute, LostRoutes
from tests.support.fake_clock import FakeClock

KEY = BrokerAddrInfo("c", "10.0.0.1:10911")
LIVE = BrokerLiveInfo("b", 0, 0.0, 120.0, None, 1, None, 1)


@pytest.fixture
def clock() -> FakeClock:
    """A clock at 1,000 s."""
    return FakeClock()


def test_loss_is_found_by_its_revision_with_the_eviction(clock: FakeClock) -> None:
    """An eviction belongs to the loss with its revision; changes that leave a route to all topics are not kept."""
    routes, evicted = LostRoutes(clock), Evicted(KEY, LIVE, "silent", 121.0, revision=2)
    routes.observe(RouteChanged({"T"}, 1, broker_name="b"))
    routes.observe(RouteChanged({"T"}, 2, broker_name="b", topics_lost=True))
    routes.observe(evicted)
    routes.observe(RouteChanged({"U"}, 3, topics_lost=True))
    routes.observe(Evicted(KEY, LIVE, "unregistered", 1.0))

    assert [routes.find(revision) for revision in (0, 1, 2, 3)] == [
        None,
        None,
        LostRoute(1_000.0, "b", evicted),
        LostRoute(1_000.0),
    ]


def test_oldest_loss_leaves_a_full_ring(clock: FakeClock) -> None:
    """The ring has a fixed size."""
    routes = LostRoutes(clock, size=2)
    for revision in (1, 2, 3):
        routes.observe(RouteChanged({"T"}, revision, topics_lost=True))

    assert (repr(routes), routes.find(1)) == ("<LostRoutes [2 losses]>", None)
    assert [routes.find(revision) is not None for revision in (2, 3)] == [True, True]
