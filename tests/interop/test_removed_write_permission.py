"""A removed write permission survives reset connections and stopped servers, with real brokers."""

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from namesrv_remoting.codes import Permission
from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import Broker, BrokerPeer
from tests.interop.peers.route import members_of, routes_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.ctl import run
from tests.support.daemon import Daemon
from tests.support.tcp_proxy import TcpProxy

# A broker closes the connection when the response to a registration takes longer: 24 s in 5.x, 6 s in 4.9 by default.
_SETTINGS: Final = {"registerBrokerTimeoutMills": 2000}
# In this time a registration, which the broker sends every ten seconds, times out.
_STOPPED_SECONDS: Final = 13.0


@pytest.mark.parametrize("peer", ["broker-5", "broker-4"])
async def test_removed_write_permission_survives_interruptions(
    peer: BrokerPeer, place: Path, two_daemons: tuple[Daemon, Daemon], mqadmin: MqAdmin
) -> None:
    """A reset connection and a stopped server keep it removed; `addWritePerm` and a graceful restart restore it."""
    async with TcpProxy(two_daemons[0].address) as proxy:
        loop = asyncio.get_running_loop()

        async def cut_and_heal() -> None:
            proxy.cut()
            await proxy.heal()

        def reset() -> None:
            asyncio.run_coroutine_threadsafe(cut_and_heal(), loop).result()

        await asyncio.to_thread(_try, place / peer, peer, two_daemons, mqadmin, proxy.address, reset)


def _try(
    home: Path,
    peer: BrokerPeer,
    daemons: tuple[Daemon, Daemon],
    mqadmin: MqAdmin,
    proxied: str,
    reset: Callable[[], object],
) -> None:
    name = f"{peer}-w"
    name_servers = [daemon.where for daemon in daemons]

    def writable() -> list[bool | None]:
        """For each server, True if the broker's queues of TBW102 are writable; None without a route."""
        routes = routes_of(name_servers, "TBW102")
        found = [None if route is None else route.queues.get(name) for route in routes]
        return [None if queues is None else bool(queues[2] & Permission.WRITE) for queues in found]

    def connection() -> object:
        """The connection on which the broker is registered with the first server; None while it is not registered."""
        found = run("-s", name_servers[0], "brokers", "--name", name, "-o", "json").json["servers"][0]
        return found["brokers"][0]["connection"] if found.get("brokers") else None

    def registered(broker: Broker) -> None:
        until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, name))

    with Broker(home, [proxied, name_servers[1]], name=name, peer=peer, settings=_SETTINGS) as broker:
        registered(broker.booted())
        assert writable() == [True, True]
        mqadmin.succeed("wipeWritePerm", "-b", name)
        assert writable() == [False, False]

        before = connection()
        reset()
        until(lambda: connection() not in (None, before))
        assert writable() == [False, False]

        before = connection()
        daemons[0].send_signal(signal.SIGSTOP)
        threading.Event().wait(_STOPPED_SECONDS)
        daemons[0].send_signal(signal.SIGCONT)
        until(lambda: connection() not in (None, before))
        registered(broker)
        assert writable() == [False, False]
        shown = run("-s", name_servers[0], "brokers", "--name", name, "-o", "json").json["servers"][0]["brokers"]
        assert [each["write_removed"] for each in shown] == [True]

        mqadmin.succeed("addWritePerm", "-b", name)
        assert writable() == [True, True]
        mqadmin.succeed("wipeWritePerm", "-b", name)
        broker.stop()
        port = broker.port
    with Broker(home, name_servers, name=name, peer=peer, port=port) as again:
        registered(again.booted())
        assert writable() == [True, True]
