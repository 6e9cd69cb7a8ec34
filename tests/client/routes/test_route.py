"""Differences between two routes of a topic, and who hears of them."""

import asyncio
import gc

import msgspec
import pytest

from namesrv_client.routes.route import Route, RouteChange, RouteChanges, RouteListeners, difference
from namesrv_remoting.bodies.route import TopicRouteData
from tests.support.fake_clock import FakeClock, settle
from tests.support.route_clients import group, queues, topic_route


def route(data: TopicRouteData, *, absent_since: float | None = None) -> Route:
    """A route of topic t."""
    return Route("t", data, "pull", 100.0, absent_since)


OLD, NEW = route(topic_route("broker-a")), route(topic_route("broker-a", "broker-b"))
GONE = route(topic_route("broker-a"), absent_since=150.0)
ORDERED = route(msgspec.structs.replace(topic_route("broker-a"), order_topic_conf="broker-a:4"))


@pytest.mark.parametrize(
    ("old", "new", "added", "removed"),
    [
        (None, NEW, ("broker-a", "broker-b"), ()),
        (NEW, OLD, (), ("broker-b",)),
        # the old route is still there, with the time since when it is known to be none
        (OLD, GONE, (), ("broker-a",)),
        # even if it looks as before it went
        (GONE, OLD, ("broker-a",), ()),
        # a change of its own: brokers and queues stay what they are
        (OLD, ORDERED, (), ()),
    ],
)
def test_a_change_names_what_came_and_what_went(
    old: Route | None, new: Route, added: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    """Brokers and their queues; a topic that is gone has no new route."""
    change = difference("t", old, new)

    assert change is not None
    assert ("t", old, None if new is GONE else new) == (change.topic, change.old, change.new)
    assert (added, removed, ()) == (change.brokers_added, change.brokers_removed, change.brokers_changed)
    assert (added, removed, ()) == (change.queues_added, change.queues_removed, change.queues_changed)


def test_a_change_names_what_is_other() -> None:
    """Brokers by their addresses, queues by their numbers and permissions."""
    names = ("broker-a", "broker-b", "broker-c")
    old = TopicRouteData([group(name) for name in names], [queues(name) for name in names])
    new = TopicRouteData(
        [group("broker-b", 0, 1), group("broker-c"), group("broker-d")],
        [queues("broker-b"), queues("broker-c", perm=4), queues("broker-d")],
    )

    change = difference("t", route(old), route(new))

    assert change is not None
    assert ("broker-d",) == change.brokers_added == change.queues_added
    assert ("broker-a",) == change.brokers_removed == change.queues_removed
    assert (change.brokers_changed, change.queues_changed) == (("broker-b",), ("broker-c",))


def test_the_same_route_is_no_change() -> None:
    """TopicRouteDataTest: a copy is equal to its original; where it came from and when does not count."""
    copy = Route("t", msgspec.structs.replace(OLD.data), "watch", 200.0)

    assert difference("t", OLD, copy) is difference("t", None, None) is difference("t", GONE, None) is None


def test_age_is_measured_on_the_clients_clock() -> None:
    """A wall clock that jumps makes no route older."""
    clock = FakeClock(monotonic=100.0)
    known = Route("t", topic_route("broker-a"), "pull", 100.0, None, clock)

    clock.stall(7.5)
    clock.step_wall(-1e6)

    assert (known.age, list(known.brokers)) == (7.5, ["broker-a"])


def change(topic: str) -> RouteChange:
    """Something about a topic."""
    return RouteChange(topic, None, None)


async def all_of(changes: RouteChanges) -> list[str]:
    """The topics of all changes until the end."""
    return [news.topic async for news in changes]


def test_every_callback_is_told_in_the_order_they_came(caplog: pytest.LogCaptureFixture) -> None:
    """Until it ends that, which it may do while being called, and twice; one that fails keeps it from nobody else."""
    listeners, told = RouteListeners(), list[str]()

    def once(news: RouteChange) -> None:
        told.append(f"once {news.topic}")
        end()
        end()

    def fail(_: RouteChange) -> None:
        raise ZeroDivisionError

    end = listeners.add(once)
    listeners.add(fail)
    listeners.add(lambda news: told.append(news.topic))

    listeners.notify(change("t"))
    listeners.notify(change("u"))

    assert told == ["once t", "t", "u"]
    assert [f"callback failed on the change of topic {topic}" for topic in "tu"] == [
        record.message for record in caplog.records
    ]


async def test_an_iterator_has_every_change_since_it_was_made_until_the_end() -> None:
    """Whether somebody looks before it comes, waits for it, or comes late."""
    listeners = RouteListeners()
    listeners.notify(change("before"))
    waited, late = listeners.iterator(), listeners.iterator()
    waiting = asyncio.ensure_future(all_of(waited))
    await settle()
    for topic in "tu":
        listeners.notify(change(topic))
        await settle()
    assert not waiting.done()
    listeners.end()

    assert [await waiting, await all_of(late)] == [["t", "u"]] * 2


async def test_who_does_not_look_loses_the_oldest() -> None:
    """10,000 are kept."""
    listeners = RouteListeners()
    changes = listeners.iterator()

    for number in range(10_003):
        listeners.notify(change(str(number)))

    assert (await anext(changes)).topic == "3"
    assert repr(changes) == "<RouteChanges [9999 waiting]>"


async def test_an_iterator_that_nobody_holds_is_forgotten() -> None:
    """There is no need to close it."""
    listeners = RouteListeners()
    listeners.iterator()
    gc.collect()

    assert repr(listeners) == "<RouteListeners [0 callbacks | 0 iterators]>"
