"""Connections without a request stay open, since RocketMQ 5 connects to each NameServer in advance."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.interop.peers.apache import Proxy
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon, LogLine

# If silent connections are refused, a Proxy meets 15 to 20 refusals in this time, and a client of 5.1 reconnects
# twice.
_HALF_A_MINUTE = 30.0


def refusals(daemons: Sequence[Daemon]) -> list[LogLine]:
    """The log lines of connections that the daemons ended."""
    return [line for daemon in daemons for line in daemon.lines("connection_refused")]


def test_two_brokers_of_5_2_are_in_the_route_at_their_first_registration(
    two_daemons: tuple[Daemon, Daemon], name_servers: list[str], place: Path
) -> None:
    """Connections that brokers open long before their first request are not refused.

    A broker whose first registration fails comes back only after its period, which is the default of 30 s here.
    """
    settings = {"registerNameServerPeriod": 30_000}
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(Broker(place / name, name_servers, name=name, peer="broker-5.2", settings=settings))
            for name in ("early-a", "early-b")
        ]
        for broker in brokers:
            broker.booted()
            until_equal([{0: broker.address}] * 2, partial(members_of, name_servers, broker.name))
            assert "RemotingSendRequestException" not in broker.log()
        assert refusals(two_daemons) == []


def test_a_proxy_and_a_client_of_5_1_are_left_alone_for_half_a_minute(
    two_daemons: tuple[Daemon, Daemon], name_servers: list[str], place: Path
) -> None:
    """A Proxy and a client keep connections to both NameServers and use one of them."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(place / "broker", name_servers, name="broker-a")).booted()
        until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, "broker-a"))
        stack.enter_context(Proxy(place / "proxy", name_servers)).booted()
        clients = stack.enter_context(Driver(place / "clients", peer="client-5.1"))
        clients.start_producer("old", name_servers)
        assert clients.send("old", "TBW102", 2, "word") == {"word-0", "word-1"}

        threading.Event().wait(_HALF_A_MINUTE)

        assert clients.send("old", "TBW102", 1, "later") == {"later-0"}
        assert refusals(two_daemons) == []
