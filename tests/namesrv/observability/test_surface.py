"""The HTTP port ends with its server; when it opens is in tests/journeys/test_http.py."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from namesrv.observability.surface import LAG_INTERVAL_SECONDS
from tests.support.http_peer import ask
from tests.support.in_process import namesrv_in_process
from tests.support.raw_peer import RawPeer


async def test_it_ends_with_the_server(tmp_path: Path) -> None:
    """Nobody listens any more, nothing is measured, and a new one may."""
    async with namesrv_in_process(tmp_path / "1", http_listen="127.0.0.1:0") as server:
        ((host, port),) = server.controller.http_addresses
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(ask, (host, port), "/livez")
    lag = server.namesrv.counters.lag
    before = lag.count
    time.sleep(LAG_INTERVAL_SECONDS)
    for _ in range(3):
        await asyncio.sleep(0)
    assert before == lag.count
    async with namesrv_in_process(tmp_path / "2", http_listen=f"{host}:{port}"):
        assert 200 == (await asyncio.to_thread(ask, (host, port), "/livez")).status


@pytest.mark.parametrize("turns", [5, 20, 40])
async def test_it_ends_in_the_middle_of_a_scrape(tmp_path: Path, caplog: pytest.LogCaptureFixture, turns: int) -> None:
    """Whose answer is cut off, without an error in the log."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        peer = await RawPeer.connect(server.controller.http_addresses[0])
        peer.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        for _ in range(turns):
            await asyncio.sleep(0)
    peer.writer.transport.abort()
    assert [] == [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
