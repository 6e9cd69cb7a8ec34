"""Differences between two routes of a topic, and listeners of changes."""

import asyncio
import gc

import msgspec
import pytest

from namesrv_client.routes.route import Route, RouteChange, RouteChanges, RouteListeners, difference
from namesrv_remoting.bodies.route import TopicRouteData
from tests.support.fake_clock import settle
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
        # the old route stays, with the time since which it is confirmed absent
        (OLD, GONE, (), ("broker-a",)),
        # even if its route is the same as before
        (GONE, OLD, ("broker-a",), ()),
        # only the order configuration changed
        (OLD, ORDERED, (), ()),
    ],
)
def test_change_names_added_and_removed_brokers(
    old: Route | None, new: Route, added: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    """Brokers and their queues are listed; a removed topic has no new route."""
    change = difference("t", old, new)

    assert change is not None
    assert (change.topic, change.old, change.new) == ("t", old, None if new is GONE else new)
    assert (change.brokers_added, change.brokers_removed, change.brokers_changed) == (added, removed, ())
    assert (change.queues_added, change.queues_removed, change.queues_changed) == (added, removed, ())


def test_change_names_changed_brokers_and_queues() -> None:
    """Brokers are compared by addresses, queues by numbers and permissions."""
    names = ("broker-a", "broker-b", "broker-c")
    old = TopicRouteData([group(name) for name in names], [queues(name) for name in names])
    new = TopicRouteData(
        [group("broker-b", 0, 1), group("broker-c"), group("broker-d")],
        [queues("broker-b"), queues("broker-c", perm=4), queues("broker-d")],
    )

    change = difference("t", route(old), route(new))

    assert change is not None
    assert change.brokers_added == change.queues_added == ("broker-d",)
    assert change.brokers_removed == change.queues_removed == ("broker-a",)
    assert (change.brokers_changed, change.queues_changed) == (("broker-b",), ("broker-c",))


def test_equal_route_is_not_a_change() -> None:
    """TopicRouteDataTest: a copy equals its original; source and time do not count."""
    copy = Route("t", msgspec.structs.replace(OLD.data), "watch", 200.0)

    assert difference("t", OLD, copy) is difference("t", None, None) is difference("t", GONE, None) is None


def change(topic: str) -> RouteChange:
    """A change of a topic."""
    return RouteChange(topic, None, None)


async def all_of(changes: RouteChanges) -> list[str]:
    """The topics of all changes until the end."""
    return [news.topic async for news in changes]


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_callbacks_run_in_order_of_changes(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """A callback may remove itself while it runs, twice as well; a failing callback does not stop the others."""
    listeners, received = RouteListeners(), list[str]()

    def once(news: RouteChange) -> None:
        received.append(f"once {news.topic}")
        end()
        end()

    def fail(_: RouteChange) -> None:
        raise error

    end = listeners.add(once)
    listeners.add(fail)
    listeners.add(lambda news: received.append(news.topic))

    listeners.notify(change("t"))
    listeners.notify(change("u"))

    assert received == ["once t", "t", "u"]
    assert [f"callback failed on the change of topic {topic}" for topic in "tu"] == [
        record.message for record in caplog.records
    ]


async def test_iterator_returns_every_change_until_the_end() -> None:
    """Early, waiting and late readers get the same changes."""
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


async def test_iterator_of_an_ended_client_ends_at_once() -> None:
    """A reader that begins after the client was closed does not wait for ever."""
    listeners = RouteListeners()
    listeners.end()

    reading = asyncio.ensure_future(all_of(listeners.iterator()))
    await settle()

    assert reading.done()
    assert reading.result() == []


async def test_slow_iterator_loses_the_oldest_changes() -> None:
    """An iterator keeps 10,000 changes."""
    listeners = RouteListeners()
    changes = listeners.iterator()

    for number in range(10_003):
        listeners.notify(change(str(number)))

    assert (await anext(changes)).topic == "3"
    assert repr(changes) == "<RouteChanges [9999 waiting]>"


async def test_unreferenced_iterator_is_removed() -> None:
    """Iterators need no closing."""
    listeners = RouteListeners()
    listeners.iterator()
    gc.collect()

    assert repr(listeners) == "<RouteListeners [0 callbacks | 0 iterators]>"
