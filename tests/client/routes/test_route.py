"""Differences between two routes of a topic."""

import msgspec

from namesrv_client.routes.route import Route, difference, lost_brokers
from namesrv_remoting.bodies.route import TopicRouteData
from tests.support.fake_clock import FakeClock
from tests.support.route_clients import group, queues, topic_route


def route(data: TopicRouteData, *, absent_since: float | None = None) -> Route:
    """A route of topic t."""
    return Route("t", data, "pull", 100.0, absent_since)


def test_the_same_route_is_no_change() -> None:
    """TopicRouteDataTest: a copy is equal to its original; where it came from and when does not count."""
    old = route(topic_route("broker-a"))
    new = Route("t", msgspec.structs.replace(topic_route("broker-a")), "watch", 200.0)

    assert difference("t", old, new) is None
    assert difference("t", None, None) is None


def test_the_first_route_adds_everything() -> None:
    """Nothing was known before."""
    new = route(topic_route("broker-a", "broker-b"))

    change = difference("t", None, new)

    assert change is not None
    assert ("t", None, new) == (change.topic, change.old, change.new)
    assert ("broker-a", "broker-b") == change.brokers_added == change.queues_added
    assert () == change.brokers_removed == change.brokers_changed == change.queues_removed == change.queues_changed


def test_a_change_names_what_came_what_went_and_what_is_other() -> None:
    """Brokers by their addresses, queues by their numbers and permissions."""
    old = TopicRouteData(
        [group("broker-a"), group("broker-b"), group("broker-c")],
        [queues("broker-a"), queues("broker-b"), queues("broker-c")],
    )
    new = TopicRouteData(
        [group("broker-b", 0, 1), group("broker-c"), group("broker-d")],
        [queues("broker-b"), queues("broker-c", perm=4), queues("broker-d")],
    )

    change = difference("t", route(old), route(new))

    assert change is not None
    assert (("broker-d",), ("broker-a",), ("broker-b",)) == (
        change.brokers_added, change.brokers_removed, change.brokers_changed,
    )  # fmt: skip
    assert (("broker-d",), ("broker-a",), ("broker-c",)) == (
        change.queues_added, change.queues_removed, change.queues_changed,
    )  # fmt: skip


def test_a_topic_that_is_gone_has_lost_everything() -> None:
    """The old route is still there, with the time since when it is known to be none."""
    old = route(topic_route("broker-a"))

    change = difference("t", old, route(topic_route("broker-a"), absent_since=150.0))

    assert change is not None
    assert (old, None, ("broker-a",)) == (change.old, change.new, change.brokers_removed)


def test_a_topic_that_is_back_has_everything_anew() -> None:
    """Even if it looks as before it went."""
    gone = route(topic_route("broker-a"), absent_since=150.0)

    change = difference("t", gone, route(topic_route("broker-a")))

    assert change is not None
    assert (("broker-a",), ()) == (change.brokers_added, change.brokers_removed)


def test_an_order_configuration_is_a_change_of_its_own() -> None:
    """Brokers and queues stay what they are."""
    old = topic_route("broker-a")

    change = difference("t", route(old), route(msgspec.structs.replace(old, order_topic_conf="broker-a:4")))

    assert change is not None
    assert () == change.brokers_changed == change.queues_changed


def test_age_is_measured_on_the_clients_clock() -> None:
    """A wall clock that jumps makes no route older."""
    clock = FakeClock(monotonic=100.0)
    known = Route("t", topic_route("broker-a"), "pull", 100.0, None, clock)

    clock.stall(7.5)
    clock.step_wall(-1e6)

    assert 7.5 == known.age
    assert ["broker-a"] == list(known.brokers)


def test_lost_brokers_are_instances_not_groups() -> None:
    """A group that lost its slave has lost something; one whose master has another address has not."""
    old = TopicRouteData([group("broker-a", 0, 1), group("broker-b")], [])
    new = TopicRouteData([group("broker-a", 0)], [])

    assert ["broker-a:1", "broker-b:0"] == lost_brokers(old, new)
    assert ["broker-a:0", "broker-a:1", "broker-b:0"] == lost_brokers(old, None)
    assert [] == lost_brokers(new, old)
