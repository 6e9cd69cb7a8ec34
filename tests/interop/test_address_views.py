"""A real broker registers an address that clients cannot reach, and they use it through an address view."""

import asyncio
from pathlib import Path

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver, GoProducer
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.needs("java", "javac", "mvn", "go")

# An address of TEST-NET-1, which nothing answers, as a pod's address is for a client outside of Kubernetes.
_UNREACHABLE = "192.0.2.1"
_VIEWS = """
[[views]]
name = "outside"
networks = ["127.0.0.0/8"]
[[views.brokers]]
registered = ["192.0.2.0/24"]
shown = "127.0.0.1:%s"
"""


def test_clients_reach_a_broker_through_a_view(tmp_path: Path, clients: Driver, unique: str) -> None:
    """Unmodified Java and Go clients send and receive by the address of the view."""
    views = tmp_path / "views.toml"
    views.write_text(_VIEWS % "{port}", encoding="utf-8")
    with (
        Daemon(tmp_path / "server", f"--address-views={views}") as daemon,
        Broker(tmp_path / "broker", [daemon.listening().where], settings={"brokerIP1": _UNREACHABLE}) as broker,
        GoProducer(tmp_path / "go", [daemon.where]) as go,
    ):
        broker.booted()
        until_equal([{0: f"127.0.0.1:{broker.port}"}], lambda: members_of([daemon.where], broker.name))
        (registered,) = {line["broker_addr"] for line in daemon.lines("broker_registered")}
        assert registered == f"{_UNREACHABLE}:{broker.port}"

        assert len(clients.pass_on(unique, [daemon.where], f"topic-{unique}")) == 20
        assert go.started().send(f"topic-{unique}", "from Go")


async def test_vip_channel_is_two_ports_below_the_address_of_the_view(
    tmp_path: Path, clients: Driver, unique: str
) -> None:
    """A Java client with the VIP channel sends by the port of the view minus 2; nothing listens on that of the view."""
    views = tmp_path / "views.toml"
    async with TcpProxy(("127.0.0.1", 1)) as vip:
        views.write_text(_VIEWS % (vip.port + 2), encoding="utf-8")
        with (
            Daemon(tmp_path / "server", f"--address-views={views}") as daemon,
            Broker(tmp_path / "broker", [daemon.listening().where], settings={"brokerIP1": _UNREACHABLE}) as broker,
        ):
            vip.switch(("127.0.0.1", broker.port - 2))
            await asyncio.to_thread(broker.booted)
            await asyncio.to_thread(daemon.wait_for, "broker_registered")
            await asyncio.to_thread(clients.start_producer, unique, [daemon.where], vip="true")

            acked = await asyncio.to_thread(clients.send, unique, f"topic-{unique}", 3, "m")

            assert acked == {"m-0", "m-1", "m-2"}
            assert vip.accepted > 0
            await asyncio.to_thread(clients.close, unique)
