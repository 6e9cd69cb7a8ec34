"""The time from a failure until an open page names it, and the look of the page then.

The clock of console and servers stands still unless the test moves it, so that the time has every interval of the
console (polls, judgements, pauses of a stream) and does not depend on the load of the machine.
tests/console/browser/test_failures.py shows the same failures in a real browser.
"""

import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from namesrv_client.health import REGISTERING_SECONDS
from namesrv_console.compared import COMPARISON_SECONDS
from namesrv_console.live import PAUSE_SECONDS
from namesrv_console.poller import ANSWER_SECONDS, MOST_REST_SECONDS, PULSE_SECONDS, RETRY_SECONDS
from tests.support.certificates import Authority
from tests.support.console import Tab, console
from tests.support.fake_clock import FakeClock, passing
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, Broker, NamesrvPeer
from tests.support.tcp_proxy import TcpProxy

MOST_SECONDS: Final = 3.0
# A master of an expiry of 120 s counts as silent after two heartbeats of 30 s.
SILENT_SECONDS: Final = 60.0


class Stage(NamedTuple):
    """Two servers with master and slave of one group; the console reaches the second one over a proxy."""

    home: Path
    servers: tuple[InProcess, InProcess]
    way: TcpProxy
    # Broker -> its connections, one to each server.
    peers: dict[Broker, list[NamesrvPeer]]
    stack: AsyncExitStack

    @property
    def clock(self) -> FakeClock:
        """The clock of all processes."""
        return self.servers[0].clock

    async def register(self, broker: Broker, *servers: InProcess) -> None:
        """Register a broker with servers, over a connection of its own to each."""
        self.peers[broker] = [await server.connect() for server in servers]
        for peer in self.peers[broker]:
            await peer.register(broker)

    async def kill(self, *brokers: Broker) -> None:
        """Close the connections of brokers."""
        for broker in brokers:
            for server, peer in zip(self.servers, self.peers[broker], strict=True):
                await server.hang_up(peer)

    async def heartbeat(self, broker: Broker) -> None:
        """Send a heartbeat of a broker to each server."""
        for peer in self.peers[broker]:
            await peer.call(904, broker.ext)

    async def replace_second(self, name: str, **settings: Any) -> None:
        """Let the console's connection lead to another server with these settings."""
        new = await self.stack.enter_async_context(namesrv_in_process(self.home / name, clock=self.clock, **settings))
        self.way.switch(new.address)


@asynccontextmanager
async def staged(home: Path) -> AsyncIterator[Stage]:
    """A stage on which all is well."""
    async with (
        AsyncExitStack() as stack,
        namesrv_in_process(home / "1", nameserver_name="ns1") as one,
        namesrv_in_process(home / "2", clock=one.clock, nameserver_name="ns2") as two,
        TcpProxy(two.address) as way,
    ):
        stage = Stage(home, (one, two), way, {}, stack)
        for broker in (MASTER, SLAVE):
            await stage.register(broker, one, two)
        yield stage


async def kill_master(stage: Stage) -> None:
    """Kill the master, not the slave."""
    await stage.kill(MASTER)


async def kill_slave(stage: Stage) -> None:
    """Kill the slave."""
    await stage.kill(SLAVE)


async def kill_group(stage: Stage) -> None:
    """Kill master and slave."""
    await stage.kill(MASTER, SLAVE)


async def hang_master(stage: Stage) -> None:
    """Return when the master has been silent for two heartbeats of the slave."""
    await stage.heartbeat(MASTER)
    for _ in range(3):
        await stage.clock.advance(SILENT_SECONDS / 3)
        await stage.heartbeat(SLAVE)


async def kill_server(stage: Stage) -> None:
    """Close the connection to the second server, and refuse new ones."""
    stage.way.cut()


async def freeze_server(stage: Stage) -> None:
    """Keep the connection to the second server open, without any response."""
    stage.way.stall()


async def deny_access(stage: Stage) -> None:
    """Continue with a server whose access file has no account for this machine."""
    access = stage.home / "access.toml"
    access.write_text('[accounts.brokers]\nnetworks = ["10.9.8.7/32"]\nmay = [{ access = "broker-control" }]\n')
    await stage.replace_second("denying", access=str(access))


async def require_tls(stage: Stage) -> None:
    """Continue with a server that requires TLS."""
    issued = Authority(stage.home).issue("tls")
    await stage.replace_second("tls", tls_mode="enforcing", **issued.server_settings)


async def expire_certificate(stage: Stage) -> None:
    """Continue with a server whose certificate has expired, and that accepts plain text, too."""
    expired = datetime.fromtimestamp(stage.clock.wall(), UTC) - timedelta(days=2)
    issued = Authority(stage.home).issue("expired", expires=expired)
    await stage.replace_second("expired", tls_mode="permissive", **issued.server_settings)


async def restart_server(stage: Stage) -> None:
    """Continue with a server that waits for a broker of its last snapshot."""
    async with namesrv_in_process(stage.home / "3", clock=stage.clock) as first:
        await (await first.connect()).register(OTHER)
    await stage.replace_second("3", wait_for_service_seconds=600)


async def remove_write_permission(stage: Stage) -> None:
    """Remove the write permission on both servers."""
    for peer in stage.peers[MASTER]:
        assert (await peer.call(205, {"brokerName": MASTER.name})).code == 0


async def split_list(stage: Stage) -> None:
    """Return when a broker of the first server is not expected to register with the second one any more."""
    await stage.register(OTHER, stage.servers[0])
    await stage.clock.advance(REGISTERING_SECONDS)
    await stage.heartbeat(MASTER)
    await stage.heartbeat(SLAVE)


class Look(NamedTuple):
    """The look of the overview with a failure."""

    level: str
    verdict: str
    # A text in the list of problems.
    words: str
    # States of both servers, and of the group's brokers on both servers: the master's, then the slave's.
    servers: str = "ready ready"
    brokers: str = "in_time in_time in_time in_time"
    agrees: bool = False


GROUP: Final = "cluster-1/broker-a"
SECOND_UNKNOWN: Final = "in_time unknown in_time unknown"
FAILURES: Final[dict[Callable[[Stage], Awaitable[None]], Look]] = {
    kill_master: Look(
        "critical", "1 group without a master · 1 broker gone", f"Critical {GROUP}: no master is registered",
        brokers="missing missing in_time in_time", agrees=True,
    ),
    kill_slave: Look(
        "warning", "1 broker gone", f"Warning {GROUP}/1: the broker has left",
        brokers="in_time in_time missing missing", agrees=True,
    ),
    kill_group: Look(
        "critical", "1 broker group gone", f"Critical {GROUP}: all brokers of the group have left",
        brokers="missing missing missing missing", agrees=True,
    ),
    hang_master: Look(
        "critical", "1 silent master", f"Critical {GROUP}: the master has sent no heartbeat",
        brokers="late late in_time in_time", agrees=True,
    ),
    kill_server: Look(
        "critical", "1 server unreachable", "Critical ns2: no NameServer can be reached there",
        servers="ready unreachable", brokers=SECOND_UNKNOWN,
    ),
    freeze_server: Look(
        "critical", "1 server without a response", "Critical ns2: the server does not respond",
        servers="ready frozen", brokers=SECOND_UNKNOWN,
    ),
    deny_access: Look(
        "unknown", "access denied by 1 server", "Unknown ns2: access denied: the state of this server is unknown",
        servers="ready refuses", brokers=SECOND_UNKNOWN,
    ),
    require_tls: Look(
        "critical", "no TLS connection to 1 server", "plain text received, but this server requires TLS",
        servers="ready tls_failed", brokers=SECOND_UNKNOWN,
    ),
    expire_certificate: Look(
        "warning", "certificates or revocation lists that run out: 1", "expired 2.0 days ago",
        brokers="in_time awaited in_time awaited",
    ),
    restart_server: Look(
        "warning", "1 server not ready", "clients get no routes from this server",
        servers="ready not_ready", brokers=SECOND_UNKNOWN,
    ),
    remove_write_permission: Look(
        "warning", "1 group without write permission", f"Warning {GROUP}: an operator removed the write permission",
        agrees=True,
    ),
    split_list: Look("warning", "1 broker missing on a server", "Warning cluster-1/broker-b/0: missing"),
}  # fmt: skip


def test_intervals_on_the_way_to_a_page_sum_to_less_than_three_seconds() -> None:
    """A failure shown by an event, an error, silence, or time alone waits for these intervals at most."""
    event = PULSE_SECONDS + 2 * MOST_REST_SECONDS + PAUSE_SECONDS
    error = PULSE_SECONDS + RETRY_SECONDS + PAUSE_SECONDS
    silent = PULSE_SECONDS + ANSWER_SECONDS + PAUSE_SECONDS
    by_time = COMPARISON_SECONDS + MOST_REST_SECONDS + PAUSE_SECONDS

    assert (event, error, silent, by_time) == pytest.approx((2.4, 1.4, 2.4, 2.15))


def text_of(part: str) -> str:
    """The text of a part of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", part)).split()).replace(" :", ":")


def verdict(tab: Tab) -> str:
    """The verdict of an open page."""
    return tab.parts.get("verdict", "")


def look(overview: str) -> tuple[str, str, bool]:
    """States of the servers and of the group's brokers on the overview, and whether the servers agree."""
    servers = re.findall(r'class="chip (\w+)"', overview)
    heat = overview.partition('id="heat"')[2].partition("</ul>")[2].partition("</section>")[0]
    brokers = re.findall(r'class="cell (\w+)"', heat.partition("broker-b")[0])
    return " ".join(servers), " ".join(brokers), '<p class="good">' in overview.partition('id="agreement"')[2]


@pytest.mark.parametrize("fail", FAILURES)
async def test_open_page_names_a_failure_within_three_seconds(
    fail: Callable[[Stage], Awaitable[None]], tmp_path: Path
) -> None:
    """The verdict changes at most 3 s after the failure can be known, and nothing on the page contradicts it."""
    expected = FAILURES[fail]
    async with staged(tmp_path) as stage:
        one, _ = stage.servers
        async with console(stage.clock, one.where, stage.way.address) as shown:
            tab = shown.tab("/")
            await passing(stage.clock, lambda: "2 servers agree" in verdict(tab))
            assert 'class="verdict good"' in verdict(tab)

            # On a slow machine, much time of the fake clock has passed.
            await stage.heartbeat(MASTER)
            await stage.heartbeat(SLAVE)
            await fail(stage)
            took = await passing(stage.clock, lambda: expected.verdict in verdict(tab))

            assert took <= MOST_SECONDS
            assert f'class="verdict {expected.level}"' in verdict(tab)
            assert f"icon-{expected.level}.svg" in verdict(tab)
            assert expected.words in text_of(tab.parts["problems"])
            await stage.clock.advance(MOST_SECONDS - took)
            assert look(await shown.text("/")) == (expected.servers, expected.brokers, expected.agrees)
            tab.leave()
