"""The pages, and how much of the loop a scrape may take."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from namesrv.observability.pages import application
from tests.support.http_peer import ask
from tests.support.in_process import namesrv_in_process


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


async def test_one_scrape_at_a_time(tmp_path: Path) -> None:
    """Eight at once are answered one after the other: no turn of the loop is longer than with one."""
    async with namesrv_in_process(tmp_path) as server:
        app = application(server.namesrv, server.controller.server)
        scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": []}
        # turns of the loop so far, and how many there were when an answer began
        turns, begun = 0, []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert 200 == message["status"]
                begun.append(turns)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        work = asyncio.gather(*(app(dict(scope), receive, send) for _ in range(8)))
        while not work.done():
            await asyncio.sleep(0)
            turns += 1

    # at least one for each family
    assert 8 == len(begun)
    assert min(later - earlier for earlier, later in itertools.pairwise(begun)) > 25
