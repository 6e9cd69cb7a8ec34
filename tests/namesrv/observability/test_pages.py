"""What is answered on the pages, and do many scrapes keep the loop for themselves?"""

import asyncio
from pathlib import Path

import pytest

from namesrv.observability.pages import pages
from tests.support.in_process import namesrv_in_process


@pytest.mark.parametrize(
    ("query", "lines"), [("", 1), ("verbose", 5), ("verbose=1", 5), ("x&verbose", 5), ("verbos", 1), ("x=verbose", 1)]
)
async def test_verbose_is_a_word_of_the_query(tmp_path: Path, query: str, lines: int) -> None:
    """With or without a value, among others or alone."""
    async with namesrv_in_process(tmp_path) as server:
        answer = await pages(server.namesrv, server.controller.server)["/readyz"](query)

    assert (200, lines) == (answer.status, answer.body.count(b"\n"))


async def test_one_scrape_at_a_time(tmp_path: Path) -> None:
    """Eight at once take as many turns of the loop as one after the other: no turn is longer than with one."""
    async with namesrv_in_process(tmp_path) as server:
        metrics = pages(server.namesrv, server.controller.server)["/metrics"]

        async def turns_of(scrapes: int) -> int:
            work = asyncio.gather(*(metrics("") for _ in range(scrapes)))
            turns = 0
            while not work.done():
                await asyncio.sleep(0)
                turns += 1
            return turns

        alone = await turns_of(1)
        assert await turns_of(8) > 7 * alone
