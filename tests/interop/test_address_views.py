"""A real broker registers an address that clients cannot reach, and they use it through an address view."""

import asyncio
from pathlib import Path

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.support.daemon import Daemon
from tests.support.tcp_proxy import TcpProxy

# An unreachable address of TEST-NET-1, like a pod's address for a client outside of Kubernetes.
_UNREACHABLE = "192.0.2.1"
_VIEWS = """
[[views]]
name = "outside"
networks = ["127.0.0.0/8"]
[[views.brokers]]
registered = ["192.0.2.0/24"]
shown = "127.0.0.1:%s"
"""


async def test_vip_channel_is_two_ports_below_the_address_of_the_view(
    tmp_path: Path, clients: Driver, unique: str
) -> None:
    """A Java client with the VIP channel sends to the view's port minus 2; the view's port itself has no listener."""
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
