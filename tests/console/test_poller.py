"""What a console asks NameServers, how often, and what it makes of those that hang, restart, refuse or are Apache's."""

import re
from pathlib import Path

import pytest

from namesrv_console.poller import changed_topics
from namesrv_console.state import ServerView
from namesrv_remoting.bodies.extensions import Event
from tests.support.apache_server import ApacheFront
from tests.support.console import Shown, console
from tests.support.ctl import address_of
from tests.support.fake_clock import passing
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import ELSEWHERE, MASTER, native_registration, registration
from tests.support.tcp_proxy import TcpProxy


def view(shown: Shown, at: int = 0) -> ServerView:
    """What the console knows of a server."""
    return shown.console.observed.cluster.servers[at]


async def requests_within(server: InProcess, seconds: float) -> int:
    """How many requests a server got, of all its connections."""
    before = sum(connection.peer.requests for connection in server.namesrv.connections.values())
    await server.clock.advance(seconds)
    return sum(connection.peer.requests for connection in server.namesrv.connections.values()) - before


async def test_fifty_tabs_cost_a_server_what_one_does(tmp_path: Path) -> None:
    """One connection, and as many questions over it; and no tab is told less."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        tabs = [shown.tab("/brokers")]
        await passing(server.clock, lambda: view(shown).state == "ready")
        await server.clock.advance(10.0)
        of_one = await requests_within(server, 20.0)

        tabs += [shown.tab(of) for of in ("/", "/brokers", "/topics") for _ in range(17)][:49]
        await passing(server.clock, lambda: all(tab.messages for tab in tabs))
        of_fifty = await requests_within(server, 20.0)

        assert len(server.namesrv.connections) == 1
        assert len(tabs) == 50
        # four pulses a second, brokers every second, connections every five
        assert 100 <= of_one <= 110
        assert of_fifty <= of_one + 1
        for tab in tabs:
            tab.leave()


async def test_a_server_that_hangs_is_grey_within_three_seconds_and_delays_nobody(tmp_path: Path) -> None:
    """It says nothing and closes nothing; what it said last stays, frozen, and the other one's news come as quickly."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        TcpProxy(two.address) as proxy,
        console(one.clock, one.where, proxy.address) as shown,
    ):
        peer = await one.connect()
        await (await two.connect()).register(MASTER)
        await peer.register(MASTER)
        tab = shown.tab("/brokers")
        await passing(one.clock, lambda: "broker-a" in tab.parts.get("tree", ""))

        proxy.stall()
        took = await passing(one.clock, lambda: "unreachable" in tab.parts["chips"])
        assert took <= 3.0
        assert tab.parts["tree"].count("age frozen") + tab.parts["tree"].count("data-heard") == 2
        assert "age frozen" in tab.parts["tree"]

        await peer.register(ELSEWHERE)
        assert await passing(one.clock, lambda: "broker-c" in tab.parts["tree"]) <= 0.5

        await proxy.heal()
        assert await passing(one.clock, lambda: "unreachable" not in tab.parts["chips"]) <= 4.0
        tab.leave()


async def test_routes_follow_every_change(tmp_path: Path) -> None:
    """Topics come, change and go; what is known is what the server has."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        for number, topics in enumerate((("A", "B"), ("A", "B", "C"), tuple(f"T{n}" for n in range(30)), ("A",))):
            await peer.register(MASTER, registration(*topics, counter=number + 1))
            await passing(server.clock, lambda: set(view(shown).topics) >= set(topics))  # noqa: B023 - called at once
        await peer.call(216, {"topic": "A"})
        await passing(server.clock, lambda: "A" not in view(shown).topics)
        await peer.register(ELSEWHERE, native_registration("Z"), spelling="native")
        await passing(server.clock, lambda: "Z" in view(shown).topics)

        known = {row.broker_name for route in view(shown).routes.values() for row in route.queue_datas}
        assert set(server.namesrv.manager.tables.topic_queue_table) == set(view(shown).routes)
        assert known >= {"broker-c"}


async def test_a_server_that_runs_anew_is_known_anew(tmp_path: Path) -> None:
    """What the run before knew is not shown as the new one's."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        TcpProxy(one.address) as proxy,
        console(one.clock, proxy.address) as shown,
    ):
        await (await one.connect()).register(MASTER)
        await passing(one.clock, lambda: view(shown).brokers)
        proxy.switch(two.address)
        await passing(one.clock, lambda: view(shown).boot_id == two.namesrv.boot_id)

        assert ({}, frozenset(), ()) == (view(shown).brokers, view(shown).topics, view(shown).events)


async def test_of_apaches_server_less_is_shown_and_said(tmp_path: Path) -> None:
    """Its brokers and topics, without ages, events and connections."""
    async with (
        namesrv_in_process(tmp_path) as server,
        ApacheFront(server.address) as apache,
        console(server.clock, address_of(apache)) as shown,
    ):
        await (await server.connect()).register(MASTER)
        await passing(server.clock, lambda: view(shown).brokers and view(shown).routes)

        assert (view(shown).state, view(shown).is_native, view(shown).connections) == ("answers", False, None)
        overview, brokers = await shown.text("/"), await shown.text("/brokers")
        assert "reports no ages, events and connections" in overview
        assert "broker-a" in brokers
        assert "age unknown" in brokers


@pytest.mark.parametrize(
    ("network", "state", "says"),
    [
        ("10.0.0.0/8", "refuses", "access denied since"),
        ("127.0.0.0/8", "ready", "routes unknown: refused with code 16"),
    ],
)
async def test_what_a_server_refuses_is_said(network: str, state: str, says: str, tmp_path: Path) -> None:
    """One that tells nothing is no dead one; one that tells some things is shown with these; neither is asked often."""
    access = tmp_path / "access.toml"
    access.write_text(f'[accounts.here]\nnetworks = ["{network}"]\nmay = ["broker-control", "admin-read"]\n')
    async with (
        namesrv_in_process(tmp_path / "data", access=str(access)) as server,
        console(server.clock, server.where) as shown,
    ):
        await (await server.connect()).register(MASTER)
        await passing(server.clock, lambda: view(shown).state == state)
        await passing(server.clock, lambda: state == "refuses" or view(shown).refused)
        overview = " ".join(re.sub(r"<[^>]*>", " ", await shown.text("/")).split())

        assert says in overview
        assert await requests_within(server, 10.0) < 70


def route_event(revision: int, *topics: str, count: int | None = None) -> Event:
    """An event that names these topics, of perhaps more."""
    return Event(revision, "route", 0, {"revision": revision, "topics": [*topics], "count": count or len(topics)})


@pytest.mark.parametrize(
    ("events", "since", "until", "changed"),
    [
        ([route_event(5, "A"), route_event(6, "B", "A")], 4, 6, {"A", "B"}),
        ([route_event(4, "A"), route_event(5, "B")], 4, 5, {"B"}),
        # one is missing, one names only some, the last one has not come, nothing was pulled yet
        ([route_event(5, "A"), route_event(7, "B")], 4, 7, None),
        ([route_event(5, "A", count=21)], 4, 5, None),
        ([route_event(5, "A")], 4, 6, None),
        ([route_event(1, "A")], 0, 1, None),
    ],
)
def test_events_name_what_changed_or_everything_is_asked(
    events: list[Event], since: int, until: int, changed: set[str] | None
) -> None:
    """Only what all changes since then name is taken for all that changed."""
    assert changed == changed_topics(events, since, until)
