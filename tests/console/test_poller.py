"""The poller's requests, and its views of servers that hang, restart, refuse requests or are Apache's."""

import asyncio
import html
import re
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from namesrv_console.poller import changed_topics
from namesrv_console.state import ServerView
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_remoting.bodies.extensions import Event
from tests.support.apache_server import ApacheFront
from tests.support.certificates import Authority
from tests.support.console import Shown, console, console_behind_proxy
from tests.support.ctl import address_of
from tests.support.fake_clock import FakeClock, completed, passing, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import ELSEWHERE, MASTER, Broker, native_registration, registration
from tests.support.tcp_proxy import TcpProxy


class SlowLink:
    """Forwards one connection at a time to a server, and its responses at a rate; an async context manager."""

    def __init__(self, target: tuple[str, int], clock: FakeClock, *, bytes_per_second: float) -> None:
        self._target = target
        self._clock = clock
        self._bytes_per_second = bytes_per_second

    @property
    def address(self) -> str:
        """The address of this end."""
        return "{}:{}".format(*self._server.sockets[0].getsockname())

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        PROCESS_PROTOCOLS.forget(self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _forward(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(*self._target)
        requests = asyncio.create_task(self._pump(near, to_far, pause_seconds=0.0))
        await self._pump(far, to_near, pause_seconds=1 / self._bytes_per_second)
        requests.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, pause_seconds: float) -> None:
        """Forward bytes until the end, with a pause for each."""
        with closing(writer), suppress(OSError):
            while data := await reader.read(4096):
                await self._clock.sleep(len(data) * pause_seconds)
                writer.write(data)


def view(shown: Shown, at: int = 0) -> ServerView:
    """The console's view of a server."""
    return shown.console.observed.cluster.servers[at]


async def requests_within(server: InProcess, seconds: float) -> int:
    """Number of requests that a server received on all its connections."""
    before = sum(connection.peer.requests for connection in server.namesrv.slots.connections.values())
    await server.clock.advance(seconds)
    return sum(connection.peer.requests for connection in server.namesrv.slots.connections.values()) - before


async def test_fifty_tabs_cost_a_server_what_one_does(tmp_path: Path) -> None:
    """Fifty tabs cause one connection and the requests of one tab; every tab gets all updates."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        tabs = [shown.tab("/brokers")]
        await passing(server.clock, lambda: view(shown).state == "ready")
        await server.clock.advance(10.0)
        of_one = await requests_within(server, 20.0)

        tabs += [shown.tab(of) for of in ("/", "/brokers", "/topics") for _ in range(17)][:49]
        await passing(server.clock, lambda: all(tab.messages for tab in tabs))
        of_fifty = await requests_within(server, 20.0)

        assert len(server.namesrv.slots.connections) == 1
        assert len(tabs) == 50
        # Four polls a second, brokers every second, connections every five.
        assert 100 <= of_one <= 110
        assert of_fifty <= of_one + 1
        for tab in tabs:
            tab.leave()


async def register_masters(server: InProcess, count: int, topics: Sequence[str]) -> None:
    """Register the masters of so many groups, which all have these topics."""
    for number in range(count):
        broker = Broker(f"broker-{number}", 0, f"10.0.0.{number}:10911")
        await (await server.connect()).register(broker, registration(*topics))


async def test_server_that_waits_for_brokers_is_not_unreachable(tmp_path: Path) -> None:
    """A server that is not ready closes a connection with a route request, and would look unreachable."""
    async with namesrv_in_process(tmp_path) as first:
        await register_masters(first, 2, ["T", "U"])
    async with namesrv_in_process(tmp_path, clock=first.clock, wait_for_service_seconds=600) as server:
        await register_masters(server, 1, ["T", "U"])
        async with console(server.clock, server.where) as shown:
            states = set()

            def has_brokers() -> bool:
                states.add(view(shown).state)
                return len(view(shown).brokers) == 1

            await passing(server.clock, has_brokers)
            for _ in range(20):
                await server.clock.advance(0.25)
                states.add(view(shown).state)
            assert states - {"asking"} == {"not_ready"}

            await register_masters(server, 2, ["T", "U"])
            await passing(server.clock, lambda: "T" in view(shown).topic_report.routes)


async def test_slow_link_looks_healthy_until_all_routes_have_arrived(tmp_path: Path) -> None:
    """The routes of a hundred topics take longer than the timeout; fewer at a time arrive, and no request fails."""
    topics = [f"topic-{number}" for number in range(200)]
    async with namesrv_in_process(tmp_path) as server:
        await register_masters(server, 12, topics)
        async with (
            SlowLink(server.address, server.clock, bytes_per_second=40_000) as link,
            console(server.clock, link.address) as shown,
        ):
            states = set()

            def has_all_routes() -> bool:
                states.add(view(shown).state)
                return len(view(shown).topic_report.routes) == len(topics)

            await passing(server.clock, has_all_routes)
            assert states == {"asking", "ready"}


async def test_routes_arrive_one_by_one_over_a_link_that_is_too_slow_for_more(tmp_path: Path) -> None:
    """The first routes take longer than the timeout: the console requests fewer at a time until they arrive."""
    topics = [f"topic-{number}" for number in range(20)]
    async with namesrv_in_process(tmp_path) as server:
        await register_masters(server, 2, topics)
        async with (
            SlowLink(server.address, server.clock, bytes_per_second=700) as link,
            console(server.clock, link.address) as shown,
        ):
            await passing(server.clock, lambda: view(shown).state == "frozen")
            # The requests before the one for routes were in time.
            assert (len(view(shown).brokers), view(shown).topic_report.routes) == (2, {})
            await passing(server.clock, lambda: len(view(shown).topic_report.routes) == len(topics))


async def test_hanging_server_is_marked_within_three_seconds(tmp_path: Path) -> None:
    """The last reported state of a server that stops responding stays, frozen; updates of the other are not delayed."""
    async with console_behind_proxy(tmp_path) as (one, two, proxy, shown):
        peer = await one.connect()
        await (await two.connect()).register(MASTER)
        await peer.register(MASTER)
        tab = shown.tab("/brokers")
        await passing(one.clock, lambda: "broker-a" in tab.parts.get("tree", ""))

        proxy.stall()
        took = await passing(one.clock, lambda: "does not respond" in tab.parts["chips"])
        assert took <= 3.0
        assert tab.parts["tree"].count("age frozen") + tab.parts["tree"].count("data-last-seen") == 2
        assert "age frozen" in tab.parts["tree"]

        await peer.register(ELSEWHERE)
        assert await passing(one.clock, lambda: "broker-c" in tab.parts["tree"]) <= 0.5

        await proxy.heal()
        assert await passing(one.clock, lambda: "does not respond" not in tab.parts["chips"]) <= 4.0
        tab.leave()


async def test_routes_follow_every_change(tmp_path: Path) -> None:
    """The console's routes equal the server's after topics are added, changed and removed."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        for number, topics in enumerate((("A", "B"), ("A", "B", "C"), tuple(f"T{n}" for n in range(30)), ("A",))):
            await peer.register(MASTER, registration(*topics, counter=number + 1))
            await passing(server.clock, lambda: set(view(shown).topic_report.topics) >= set(topics))  # noqa: B023 - called at once
        await peer.call(216, {"topic": "A"})
        await passing(server.clock, lambda: "A" not in view(shown).topic_report.topics)
        await peer.register(ELSEWHERE, native_registration("Z"), spelling="native")
        await passing(server.clock, lambda: "Z" in view(shown).topic_report.topics)

        known = {row.broker_name for route in view(shown).topic_report.routes.values() for row in route.queue_datas}
        assert set(server.namesrv.manager.tables.topic_queue_table) == set(view(shown).topic_report.routes)
        assert known >= {"broker-c"}


async def test_restarted_server_gets_a_new_view(tmp_path: Path) -> None:
    """The state of the boot before is not shown as the state of the new one."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        TcpProxy(one.address) as proxy,
        console(one.clock, proxy.address) as shown,
    ):
        await (await one.connect()).register(MASTER)
        await passing(one.clock, lambda: view(shown).brokers)
        proxy.switch(two.address)
        await passing(one.clock, lambda: view(shown).boot_id == two.namesrv.boot.id)

        assert (view(shown).brokers, view(shown).topic_report.topics, view(shown).events) == ({}, frozenset(), ())


async def test_page_of_apaches_server_names_what_is_missing(tmp_path: Path) -> None:
    """The page shows its brokers and topics, and names ages, events and connections as not reported."""
    async with (
        namesrv_in_process(tmp_path) as server,
        ApacheFront(server.address) as apache,
        console(server.clock, address_of(apache)) as shown,
    ):
        await (await server.connect()).register(MASTER)
        # Requests have timeouts by this clock, and real sockets need real time.
        await completed(server.clock, until(lambda: view(shown).brokers and view(shown).topic_report.routes))

        assert (view(shown).state, view(shown).info, view(shown).connections) == ("answers", None, None)
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
async def test_refused_requests_are_shown(network: str, state: str, says: str, tmp_path: Path) -> None:
    """A server that denies all requests is not unreachable; one that denies some is shown with the rest."""
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


async def test_denied_brokers_and_routes_are_not_shown_as_the_servers(tmp_path: Path) -> None:
    """An account that lost the right to read them knows none: the last reported ones may have left."""
    access = tmp_path / "access.toml"
    text = '[accounts.here]\nnetworks = ["127.0.0.0/8"]\nmay = ["broker-control"{}]\n'
    access.write_text(text.format(', "route-read", "admin-read"'))
    async with (
        namesrv_in_process(tmp_path / "data", access=str(access)) as server,
        console(server.clock, server.where) as shown,
    ):
        await (await server.connect()).register(MASTER)
        await passing(server.clock, lambda: view(shown).brokers and view(shown).topic_report.routes)
        access.write_text(text.format(""))
        await server.reloader(f"--access={access}").reload()
        await (await server.connect()).register(MASTER, registration("T", "new", counter=2))
        await passing(server.clock, lambda: {"brokers", "routes"} <= view(shown).refused.keys())

        assert (view(shown).brokers, view(shown).topic_report.topics, view(shown).topic_report.routes) == (
            {},
            frozenset(),
            {},
        )
        assert "Unknown: no server reports its brokers." in await shown.text("/brokers")
        row = re.search(r'id="server-1".*?</tr>', await shown.text("/"), re.DOTALL)
        assert row is not None
        assert '<td class="number" data-label="Brokers"></td>' in row[0]
        assert [one.kind for one in shown.console.health.report(shown.console.observed.cluster).problems] == [
            "not_reported"
        ]


@pytest.mark.parametrize(
    ("server_mode", "client_tls", "says"),
    [
        ("off", "trusting", "the server does not speak TLS"),
        (
            "enforcing",
            "trusting others",
            "certificate is refused: unable to get local issuer certificate",
        ),
        ("expired", "trusting", "the server's certificate is refused: certificate has expired"),
        ("demanding", "trusting", "the server requires a client certificate"),
    ],
)
async def test_reason_of_a_tls_failure_is_shown(server_mode: str, client_tls: str, says: str, tmp_path: Path) -> None:
    """The page says what is wrong with TLS, and does not call the server unreachable or its access denied."""
    ca = Authority(tmp_path)
    expires = datetime.now(UTC) - timedelta(days=2) if server_mode == "expired" else None
    settings: dict[str, Any] = {} if server_mode == "off" else ca.issue("server", expires=expires).server_settings
    settings["tls_mode"] = "off" if server_mode == "off" else "enforcing"
    if server_mode == "demanding":
        settings |= {"tls_client_auth": "require", "tls_ca_file": str(ca.ca_file)}
    trusted = {"trusting": ca.client(), "trusting others": Authority(tmp_path, "others").client()}
    async with (
        namesrv_in_process(tmp_path / "data", **settings) as server,
        console(server.clock, server.where, tls=TlsClientSettings(**trusted[client_tls])) as shown,
    ):
        # The clock stands still: handshakes run in threads, and a moved clock would time the first request out.
        await until(lambda: view(shown).state == "tls_failed")
        overview = html.unescape(await shown.text("/"))

        assert "no TLS connection to 1 server" in overview
        assert says in overview


def route_event(revision: int, *topics: str, count: int | None = None) -> Event:
    """An event that names these topics out of `count`."""
    return Event(revision, "route", 0, {"revision": revision, "topics": [*topics], "count": count or len(topics)})


@pytest.mark.parametrize(
    ("events", "since", "until", "changed"),
    [
        ([route_event(5, "A"), route_event(6, "B", "A")], 4, 6, {"A", "B"}),
        ([route_event(4, "A"), route_event(5, "B")], 4, 5, {"B"}),
        # An event is missing, an event names only some topics, the last event has not arrived, no route was pulled yet.
        ([route_event(5, "A"), route_event(7, "B")], 4, 7, None),
        ([route_event(5, "A", count=21)], 4, 5, None),
        ([route_event(5, "A")], 4, 6, None),
        ([route_event(1, "A")], 0, 1, None),
    ],
)
def test_incomplete_events_cause_a_full_pull(
    events: list[Event], since: int, until: int, changed: set[str] | None
) -> None:
    """The changed topics are known only if the events name every change since the last revision."""
    assert changed_topics(events, since, until) == changed
