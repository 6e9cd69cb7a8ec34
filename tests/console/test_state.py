"""The reported state of a server, on the console's clock."""

import math
from dataclasses import replace

import pytest

from namesrv_console.state import BrokerKey, Cluster, ConnectionReport, Failure, ServerView, seen_brokers
from namesrv_remoting.bodies.extensions import Event, LiveBroker, ServerInfo

KEY = BrokerKey("c1", "broker-a", 0)


def live(age: float, expires_in: float, addr: str = "10.0.0.1:10911") -> LiveBroker:
    """A broker as a server reports it."""
    return LiveBroker(*KEY, addr, age_seconds=age, expires_in_seconds=expires_in)


@pytest.mark.parametrize(
    ("asked_at", "age", "last_seen_at"),
    [
        # The same heartbeat, requested a second later: the response's travel time moves it a little.
        (101.05, 11.0, 90.0),
        (100.9, 11.0, 90.0),
        # A new heartbeat.
        (101.0, 0.5, 100.5),
        # A server may send any number.
        (101.0, math.nan, None),
        (101.0, -math.inf, None),
    ],
)
def test_time_of_a_heartbeat_stays_until_the_next(asked_at: float, age: float, last_seen_at: float | None) -> None:
    """A page changes with a broker's heartbeat, and not with each response."""
    known = seen_brokers({}, [live(10.0, 110.0)], 100.0)
    assert (known[KEY].last_seen_at, known[KEY].evicted_at) == (90.0, 210.0)

    assert seen_brokers(known, [live(age, 120.0 - age)], asked_at)[KEY].last_seen_at == last_seen_at


def test_only_what_can_be_seen_makes_a_new_revision() -> None:
    """A new response, uptime or request count makes no revision; another state, address or report does."""
    info = ServerInfo("b1", ready=True)
    view = ServerView("ns1:9876").answered(1.0, info=info)
    cluster = Cluster.of(["ns1:9876"]).with_view(view)
    assert cluster.revision == 1

    older = ServerInfo("b1", ready=True, uptime_seconds=9.0, pulls=5)
    assert cluster.with_view(view.answered(2.0, info=older)).revision == 1
    assert cluster.with_view(view.lost("no answer", 3.0)).revision == 2
    assert cluster.with_view(view.answered(3.0, info=ServerInfo("b1", ready=False))).revision == 2
    assert cluster.with_view(replace(view, connection_report=ConnectionReport(2.0, ()))).revision == 2
    apache = Cluster.of(["ns2:9876"])
    assert apache.with_view(apache.servers[0].answered(1.0, info=None)).revision == 1


def test_since_when_a_server_is_lost_stays() -> None:
    """Further failed requests keep the time of the loss; the next loss has a new time."""
    view = ServerView("ns1:9876").lost("refused", 1.0).lost("no answer", 2.0)
    assert (view.failure, view.state) == (Failure(1.0, "no answer"), "unreachable")
    assert view.answered(5.0, info=None).lost("refused", 9.0).failure == Failure(9.0, "refused")


def test_server_has_its_own_name_unless_another_has_it_too() -> None:
    """A server is called by its address until its name is known, and while another server has the same name."""

    def view(address: str, nameserver: str | None) -> ServerView:
        return ServerView(address).answered(1.0, info=ServerInfo("b1", nameserver=nameserver))

    cluster = Cluster.of(["10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"]).with_view(view("10.0.0.1:9876", "ns1"))
    assert cluster.names(["10.0.0.1:9876", "10.0.0.2:9876"]) == ["ns1", "10.0.0.2:9876"]

    both = cluster.with_view(view("10.0.0.2:9876", "ns1"))
    assert [one.name for one in both.servers] == ["10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"]
    assert both.revision == cluster.revision + 1

    renamed = both.with_view(view("10.0.0.2:9876", "ns2"))
    assert [one.name for one in renamed.servers] == ["ns1", "ns2", "10.0.0.3:9876"]
    lost = renamed.with_view(renamed.server("10.0.0.1:9876").lost("refused", 2.0))
    assert lost.name("10.0.0.1:9876") == "ns1"
    assert lost.name("cluster-a/broker-a") == "cluster-a/broker-a"


def test_refusals_end_with_the_boot() -> None:
    """Another server at the address is not asked for everything that the former one refused."""
    view = replace(ServerView("ns1:9876").answered(1.0, info=ServerInfo("b1")), refused={"connections": "denied"})

    assert view.answered(2.0, info=ServerInfo("b1")).refused == {"connections": "denied"}
    assert view.answered(2.0, info=None).refused == {}


def test_clock_of_a_server_moves_only_by_more_than_a_response_travels() -> None:
    """Each response travels for another time, so that the times on a page would move with each of them."""
    view = ServerView("ns1:9876")
    ahead = []
    for now, uptime in ((1.0, 10.0), (2.5, 11.0), (3.0, 12.0), (4.0, 3613.0)):
        view = view.answered(now, info=ServerInfo("b1", started_ms=100_000, uptime_seconds=uptime))
        ahead.append(view.wall_minus_monotonic)

    assert ahead == [109.0, 109.0, 109.0, 3709.0]
    assert view.answered(5.0, info=ServerInfo("b1", started_ms=0, uptime_seconds=1e300)).wall_minus_monotonic is None
    assert view.answered(5.0, info=None).wall_minus_monotonic is None


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, 1_000])
def test_known_events_follow_a_step_of_the_servers_clock(step_ms: int) -> None:
    """A server reports all its times by its clock as it is set now; a difference of a second may be the way."""
    events = [Event(1, "evict", 100_000, {}), Event(2, "evict", None, {})]
    info = ServerInfo("b1", started_ms=100_000, uptime_seconds=1.0)
    later = ServerInfo("b1", started_ms=100_000 + step_ms, uptime_seconds=2.0)

    view = ServerView("ns1:9876").answered(10.0, info=info).with_events(events).answered(11.0, info=later)

    moved_ms = 0 if step_ms == 1_000 else step_ms
    assert [event.ts_ms for event in view.events] == [100_000 + moved_ms, None]
