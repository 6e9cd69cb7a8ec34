"""The pages, and how much of the loop a scrape may take."""

import asyncio
from pathlib import Path

import pytest

from namesrv.observability.pages import FRESH_SECONDS
from tests.support.http_peer import Scrape, ask
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.raw_peer import RawPeer


@pytest.mark.parametrize(
    ("query", "lines"),
    [("", 1), ("?verbose", 6), ("?verbose=1", 6), ("?x&verbose", 6), ("?verbos", 1), ("?x=verbose", 1)],
)
async def test_verbose_is_a_word_of_the_query(tmp_path: Path, query: str, lines: int) -> None:
    """With or without a value, among others or alone; nothing is to be cached."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        (address,) = server.controller.http_addresses
        answer = await asyncio.to_thread(ask, address, f"/readyz{query}")

    assert (200, lines) == (answer.status, answer.text.count("\n"))


async def test_metrics_are_rendered_four_times_a_second(tmp_path: Path) -> None:
    """However many ask: eight at once, and all who come before a quarter of a second is over, see the same."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        (address,) = server.controller.http_addresses

        async def topics() -> float:
            peer = await RawPeer.connect(address)
            peer.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            head, _, page = (await peer.reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            peer.close()
            return Scrape(page.decode())("nameserver_topics")

        assert [0] * 8 == await asyncio.gather(*(topics() for _ in range(8)))
        await (await server.connect()).register(Broker())
        await server.clock.advance(FRESH_SECONDS - 0.01)
        assert 0 == await topics()
        await server.clock.advance(0.01)
        assert 2 == await topics()
