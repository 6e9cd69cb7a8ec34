"""A scrape leaves the loop to others, however much there is."""

import asyncio
import itertools
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

from namesrv.observability.exposition import CONTENT_TYPE, exposition
from namesrv.observability.families import Survey
from tests.support.http_peer import Scrape, ask
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration

T = TypeVar("T")

# of functions, in a step in which the loop looks at nothing else; `make bench` measures how long that is
MOST_CALLS = 1_200


async def test_scrape_of_many_brokers_and_connections(tmp_path: Path) -> None:
    """A thousand brokers with ten topics each, on a hundred connections: no step looks at all of them."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        peers = [await server.connect() for _ in range(100)]
        for number in range(1000):
            body = registration(*(f"topic-{number % 100}-{each}" for each in range(10)))
            broker = Broker(f"broker-{number}", 0, f"10.0.{number // 250}.{number % 250}:10911")
            await peers[number % 100].register(broker, body)

        calls, found = await _driven(Survey.of(server.namesrv, server.controller.server))
        metrics = Scrape((await exposition(server.namesrv, server.controller.server)).decode())

        assert 1000 == metrics("nameserver_brokers", state="live")
        assert 100 == metrics("nameserver_connections", proto="json", role="broker")
        assert (1000, 80_000) == (metrics("nameserver_topics"), metrics("nameserver_queues"))
        assert (1000, 100) == (found.brokers["live"], found.connections["json", "broker"])
        assert calls < MOST_CALLS


async def test_pulls_are_answered_during_a_scrape(tmp_path: Path) -> None:
    """Between two families the loop looks at its sockets: questions that came meanwhile do not wait for the rest."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(Broker())
        work = asyncio.ensure_future(exposition(server.namesrv, server.controller.server))
        answered = 0
        while not work.done():
            await peer.call(105, {"topic": "T"})
            answered += 1

        assert answered > 10


async def test_scrape_says_what_it_is(tmp_path: Path) -> None:
    """Text in the format that every Prometheus reads."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        answer = await asyncio.to_thread(ask, server.controller.http_addresses[0], "/metrics")

    assert "text/plain; version=0.0.4; charset=utf-8" == CONTENT_TYPE == answer.headers["content-type"]
    assert answer.text.endswith("\n")


async def _driven(work: Coroutine[None, None, T]) -> tuple[int, T]:
    """How many calls of functions the longest step of a coroutine makes, and its result."""
    longest = 0
    steps = work.__await__()
    while True:
        calls = itertools.count()
        sys.setprofile(lambda _frame, event, _argument: event.endswith("call") and next(calls))  # noqa: B023 - of this step
        try:
            waits_for = next(steps)
        except StopIteration as done:
            return longest, done.value
        finally:
            sys.setprofile(None)
            longest = max(longest, next(calls))
        assert waits_for is None, "nothing but giving way to others"
        await asyncio.sleep(0)
