"""Every listener hears of every change, whatever the others do."""

import asyncio
import gc

import pytest

from namesrv_client.routes.listeners import RouteListeners
from namesrv_client.routes.route import RouteChange
from tests.support.fake_clock import settle


def change(topic: str) -> RouteChange:
    """Something about a topic."""
    return RouteChange(topic, None, None)


def test_callbacks_are_told_in_the_order_they_came() -> None:
    """Until they end it; ending twice is no error."""
    listeners, told = RouteListeners(), list[str]()
    end_first = listeners.add(lambda news: told.append(f"first {news.topic}"))
    listeners.add(lambda news: told.append(f"second {news.topic}"))

    listeners.notify(change("t"))
    end_first()
    end_first()
    listeners.notify(change("u"))

    assert ["first t", "second t", "second u"] == told


def test_a_callback_that_fails_is_logged_and_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """It is somebody else's bug."""
    listeners, told = RouteListeners(), list[str]()

    def fail(_: RouteChange) -> None:
        raise ZeroDivisionError

    listeners.add(fail)
    listeners.add(lambda news: told.append(news.topic))

    listeners.notify(change("t"))

    assert ["t"] == told
    assert ["callback failed on the change of topic t"] == [record.message for record in caplog.records]


def test_a_callback_may_end_itself() -> None:
    """While it is being called; the one after it is not skipped."""
    listeners, told = RouteListeners(), list[str]()

    def once(news: RouteChange) -> None:
        told.append(f"once {news.topic}")
        end()

    end = listeners.add(once)
    listeners.add(lambda news: told.append(news.topic))

    listeners.notify(change("t"))
    listeners.notify(change("u"))

    assert ["once t", "t", "u"] == told


async def test_an_iterator_has_every_change_since_it_was_made() -> None:
    """Also those before somebody looks for the first time."""
    listeners = RouteListeners()
    listeners.notify(change("before"))
    changes = listeners.iterator()
    listeners.notify(change("t"))
    listeners.notify(change("u"))
    listeners.end()

    assert ["t", "u"] == [news.topic async for news in changes]


async def test_an_iterator_waits_for_the_next_change() -> None:
    """And each iterator gets it."""
    listeners = RouteListeners()
    first, second = listeners.iterator(), listeners.iterator()
    waiting = [asyncio.ensure_future(anext(changes)) for changes in (first, second)]
    await settle()
    assert not any(task.done() for task in waiting)

    listeners.notify(change("t"))

    assert ["t", "t"] == [news.topic for news in await asyncio.gather(*waiting)]


async def test_an_iterator_ends_with_the_client() -> None:
    """Whoever waits is not left hanging."""
    listeners = RouteListeners()
    changes = listeners.iterator()

    async def all_of_them() -> list[str]:
        return [news.topic async for news in changes]

    waiting = asyncio.ensure_future(all_of_them())
    await settle()
    listeners.end()

    assert [] == await waiting


async def test_who_does_not_look_loses_the_oldest() -> None:
    """10,000 are kept."""
    listeners = RouteListeners()
    changes = listeners.iterator()

    for number in range(10_003):
        listeners.notify(change(str(number)))

    assert "3" == (await anext(changes)).topic
    assert "<RouteChanges [9999 waiting]>" == repr(changes)


async def test_an_iterator_that_nobody_holds_is_forgotten() -> None:
    """There is no need to close it."""
    listeners = RouteListeners()
    listeners.iterator()
    gc.collect()

    assert "<RouteListeners [0 callbacks | 0 iterators]>" == repr(listeners)
