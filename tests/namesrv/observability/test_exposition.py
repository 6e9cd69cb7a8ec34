"""Does a scrape leave the loop to others, however much there is?"""

import asyncio
import gc
import time
from pathlib import Path

from namesrv.observability.exposition import CONTENT_TYPE, exposition
from tests.support.http_peer import Scrape, ask
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration
from tests.support.raw_peer import until

# what a scrape may cost a pull, of the processor's time: a machine that is busy with other tests gives it later
LONGEST_STEP_SECONDS = 0.002


async def test_scrape_of_many_brokers_and_connections(tmp_path: Path) -> None:
    """A thousand brokers with ten topics each, on connections of their own: no step keeps the loop for long."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        peers = [await server.connect() for _ in range(100)]
        for number in range(1000):
            body = registration(*(f"topic-{number % 100}-{each}" for each in range(10)))
            broker = Broker(f"broker-{number}", 0, f"10.0.{number // 250}.{number % 250}:10911")
            await peers[number % 100].register(broker, body)
        gc.collect()

        work = exposition(server.namesrv)
        longest, text = await _driven(work)

        metrics = Scrape(text.decode())
        assert 1000 == metrics("nameserver_brokers", state="live")
        assert 100 == metrics("nameserver_connections", proto="json", role="broker")
        assert (1000, 80_000) == (metrics("nameserver_topics"), metrics("nameserver_queues"))
        assert longest < LONGEST_STEP_SECONDS, f"{longest * 1000:.1f} ms"


async def test_pulls_are_answered_during_a_scrape(tmp_path: Path) -> None:
    """Between two families the loop looks at its sockets: questions that came meanwhile do not wait for the rest."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(Broker())
        work = asyncio.ensure_future(exposition(server.namesrv))
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


async def test_two_scrapes_at_once(tmp_path: Path) -> None:
    """Each gets a whole one."""
    async with namesrv_in_process(tmp_path) as server:
        texts = await asyncio.gather(*(exposition(server.namesrv) for _ in range(2)))

        assert Scrape(texts[0].decode()).names == Scrape(texts[1].decode()).names
        await until(lambda: True)


async def _driven(work: object) -> tuple[float, bytes]:
    """The longest step of a coroutine, and its result."""
    longest = 0.0
    steps = work.__await__()  # type: ignore[attr-defined]  # a coroutine
    # the collector would look through all that the tests of this process have loaded
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            try:
                waits_for = next(steps)
            except StopIteration as done:
                return longest, done.value
            finally:
                longest = max(longest, time.thread_time() - began)
            assert waits_for is None, "nothing but giving way to others"
            await asyncio.sleep(0)
    finally:
        gc.enable()
