"""HTTP pages of a server: liveness and readiness; tests/journeys/test_http.py tests their texts."""

import asyncio
import logging
from pathlib import Path

import pytest

from namesrv.observability.pages import FRESH_SECONDS, PAGES, liveness, readiness
from tests.support.http_peer import Scrape, ask
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker
from tests.support.raw_peer import RawPeer


@pytest.mark.parametrize(
    ("query", "lines"),
    [("", 1), ("?verbose", 7), ("?verbose=1", 7), ("?x&verbose", 7), ("?verbos", 1), ("?x=verbose", 1)],
)
@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_verbose_query_parameter(server: InProcess, query: str, lines: int) -> None:
    """`verbose` counts with or without a value, alone or among other parameters; no proxy may keep the response."""
    (address,) = server.controller.http.pages
    response = await asyncio.to_thread(ask, address, f"/readyz{query}")

    assert (response.status, response.text.count("\n")) == (200, lines)
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("127.0.0.1:9877", "[::1]:9877", "[::1]", "10.0.0.7", "localhost:9877", "namesrv-1")),
        *((host, 200) for host in ("ns1.example.com", "NS1.Example.com.:9877", "a.svc.cluster.local", "our.name")),
        *((host, 421) for host in ("evil.example", "127.0.0.1.evil.example:9877", "svc.cluster.local", "127.1")),
    ],
)
@pytest.mark.settings(
    http_listen="127.0.0.1:0", nameserver_name="our.name", http_hosts="ns1.example.com,*.svc.cluster.local"
)
async def test_unknown_hosts_are_refused(server: InProcess, host: str, status: int) -> None:
    """A request for an unknown host, as from a rebound DNS name, gets 421 with a hint, and is counted."""
    (address,) = server.controller.http.pages
    peer = await RawPeer.connect(address)
    peer.send(f"GET /livez HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())

    head, _, page = (await peer.reader.read()).partition(b"\r\n\r\n")

    expected = (
        b"ok\n" if status == 200 else f"unknown host {host!r}; if it is this server, add it to http-hosts\n".encode()
    )
    assert (head[9:12], page) == (b"%d" % status, expected)
    assert server.namesrv.counters.http == {("/livez", status): 1}
    peer.close()


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_every_page_refuses_unknown_hosts(server: InProcess, page: str) -> None:
    """The discovery pages have the addresses of all brokers and NameServers."""
    peer = await RawPeer.connect(server.controller.http.pages[0])
    peer.send(f"GET {page} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode())

    assert (await peer.reader.read()).startswith(b"HTTP/1.1 421 ")
    peer.close()


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_metrics_are_rendered_at_most_four_times_a_second(server: InProcess) -> None:
    """All scrapes within a quarter of a second get the same metrics."""
    (address,) = server.controller.http.pages

    async def topics() -> float:
        peer = await RawPeer.connect(address)
        peer.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, page = (await peer.reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        # the text format that every Prometheus reads
        assert b"content-type: text/plain; version=0.0.4; charset=utf-8" in head
        peer.close()
        return Scrape(page.decode())("nameserver_topics")

    assert await asyncio.gather(*(topics() for _ in range(8))) == [0] * 8
    await (await server.connect()).register(Broker())
    await server.clock.advance(FRESH_SECONDS - 0.01)
    assert await topics() == 0
    await server.clock.advance(0.01)
    assert await topics() == 2


async def test_blocked_housekeeping_ends_liveness_and_readiness(server: InProcess) -> None:
    """A server is alive while its housekeeping runs; after 30 s without it, it is neither alive nor ready."""
    namesrv, clock = server.namesrv, server.clock
    for _ in range(3):
        await clock.advance(20.0)
        assert [check.is_ok for check in liveness(namesrv)] == [True]
    # a scan waits for this lock
    async with namesrv.manager.lock.read():
        await clock.advance(39.0)
        assert [str(check) for check in liveness(namesrv)] != ["[-] housekeeping: last ran 30.0 s ago"]
        await clock.advance(5.0)
        assert [check.is_ok for check in liveness(namesrv)] == [False]
        assert {check.name for check in readiness(namesrv) if not check.is_ok} == {"housekeeping"}
    await clock.advance(2.0)
    assert [check.is_ok for check in liveness(namesrv)] == [True]


async def test_server_that_does_not_listen_is_not_ready(server: InProcess) -> None:
    """A server without listening addresses is not ready."""
    addresses, server.namesrv.boot.addresses = server.namesrv.boot.addresses, []
    assert [str(check) for check in readiness(server.namesrv) if not check.is_ok] == ["[-] listening: not yet"]
    server.namesrv.boot.addresses = addresses


@pytest.mark.parametrize("iterations", [5, 20, 40])
async def test_server_stops_during_a_scrape(tmp_path: Path, caplog: pytest.LogCaptureFixture, iterations: int) -> None:
    """A scrape is cut off by the stop of the server without an error in the log."""
    async with namesrv_in_process(tmp_path, http_listen="127.0.0.1:0") as server:
        peer = await RawPeer.connect(server.controller.http.pages[0])
        peer.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        for _ in range(iterations):
            await asyncio.sleep(0)
    peer.writer.transport.abort()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
