"""A broker and Java clients with IPv6 addresses only."""

from pathlib import Path

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import members_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.ctl import run
from tests.support.daemon import Daemon
from tests.support.ipv6 import can_use_ipv6

pytestmark = pytest.mark.skipif(not can_use_ipv6(), reason="no IPv6 loopback here")


def test_messages_pass_over_ipv6(tmp_path: Path, clients: Driver) -> None:
    """The broker registers with `[::1]`, and messages pass by that address between unmodified Java clients."""
    with Daemon(tmp_path / "namesrv", "--listen-host=::1", "--listen-port=0") as daemon:
        servers = [daemon.listening().where]
        assert servers == [f"[::1]:{daemon.address[1]}"]
        settings = {"brokerIP1": "[::1]", "brokerIP2": "[::1]", "bindAddress": "::1"}
        with Broker(tmp_path / "broker", servers, settings=settings) as broker:
            broker.booted()
            registered = f"[::1]:{broker.port}"
            until_equal([{0: registered}], lambda: members_of(servers, broker.name))

            clients.pass_on("six", servers, "orders")

            (route,) = until_routed(servers, "orders")
            assert route.brokers == {broker.name: {0: registered}}
            shown = run("-s", servers[0], "route", "orders", "-o", "json")
            assert (shown.code, registered in shown.out) == (0, True)
