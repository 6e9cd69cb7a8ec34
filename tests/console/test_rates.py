"""Samples of the traffic of servers, and the page of rates."""

import asyncio
from pathlib import Path

from namesrv_console.poller import Observed
from namesrv_console.rates import MAX_SAMPLES, Rates
from namesrv_console.state import ServerView
from namesrv_remoting.bodies.extensions import ServerInfo, Traffic
from tests.support.console import console
from tests.support.fake_clock import FakeClock, passing
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER
from tests.support.tcp_proxy import TcpProxy


async def test_samples_are_bounded_and_renew_an_open_page_only() -> None:
    """A sample is taken every 5 s, for a quarter of an hour; an open page of rates is filled anew once for each."""
    clock, observed = FakeClock(), Observed(["s1"])
    rates = Rates(observed, clock)
    info = ServerInfo("b1", traffic=Traffic(1, 0, 0, 0, 0, [], [1]))
    observed.put(ServerView("s1").answered(clock.monotonic(), info=info))
    running = asyncio.create_task(rates.run())
    before = observed.cluster.revision

    await clock.advance(4.9)
    samples = rates.shown()["s1"]
    assert len(samples) == 0
    await clock.advance(0.2)
    assert (len(samples), observed.cluster.revision) == (1, before + 1)
    await clock.advance(3600.0)
    assert (len(samples), observed.cluster.revision) == (MAX_SAMPLES, before + 1)
    running.cancel()


async def test_registration_shows_on_an_open_page(tmp_path: Path) -> None:
    """An open page receives the charts after each sample: a registration within 5 s is 0.2 a second."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        tab = shown.tab("/rates")
        await server.clock.advance(11.0)
        await (await server.connect()).register(MASTER)
        await passing(server.clock, lambda: "Registrations: <b>0.2" in tab.parts["rates"], at_most=6.0)

        assert tab.parts["rates"].count("<polyline") == 7
        tab.leave()


async def test_values_of_a_server_that_is_gone_become_unknown(tmp_path: Path) -> None:
    """The last values of the only server are not shown as current ones until its return."""
    async with (
        namesrv_in_process(tmp_path) as server,
        TcpProxy(server.address) as way,
        console(server.clock, way.address) as shown,
    ):
        tab = shown.tab("/rates")
        await passing(server.clock, lambda: "Connections: <b>1</b>" in tab.parts.get("rates", ""))

        way.cut()
        await passing(server.clock, lambda: "Connections: <b>unknown</b>" in tab.parts["rates"])
        tab.leave()
