"""Clients of a zone use the brokers of a neighbour zone one poll after their own zone has died."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from namesrv_client import ClientSettings, SyncRouteClient
from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import Broker, leaves
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import topics_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.ctl import run
from tests.support.daemon import Daemon

_TOPIC: Final = "orders"
_CLIENT_FLAGS: Final = ("-Drocketmq.zone=east", "-Drocketmq.zone.mode=true")
_EAST: Final = "broker-east"
_WEST: Final = "broker-west"
# The error of a Java client with a route without brokers.
_NO_BROKER: Final = "No route info of this topic"
_RULE: Final = "(zone-fallback adds zones below 1 master and 1 write queue)"


class World:
    """Two NameServers, of which the first has a zone fallback, and a broker in each of two zones."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        flags = {"spilling": ("--zone-fallback=east>west",), "strict": ()}
        self.daemons = [stack.enter_context(Daemon(place / name, *flags[name])).listening() for name in flags]
        self.spilling, self.strict = ([daemon.where] for daemon in self.daemons)
        self.servers = [*self.spilling, *self.strict]
        self.east, self.west = self._start("east"), self._start("west")
        with MqAdmin(place / "topics", *self.spilling) as admin:
            for broker in (self.east, self.west):
                self._until_registered(broker)
                admin.make_topics(broker.address, _TOPIC)
        until(lambda: all(_TOPIC in topics_of(server) for server in self.servers))

    def start_east_again(self) -> None:
        """Start the broker of zone east with its topics; return as soon as both NameServers know it."""
        self.east = self._start("east", self.east.port)
        self._until_registered(self.east, count=2)

    def _start(self, zone: str, port: int = 0) -> Broker:
        flags = (f"-Drocketmq.zone={zone}",)
        broker = Broker(self._place / zone, self.servers, name=f"broker-{zone}", port=port, flags=flags)
        return self._stack.enter_context(broker)

    def _until_registered(self, broker: Broker, *, count: int = 1) -> None:
        broker.booted()
        for daemon in self.daemons:
            daemon.wait_for("broker_registered", broker_name=broker.name, count=count)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """New servers and brokers."""
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_no_send_fails_one_poll_after_a_zone_has_died(world: World, tmp_path: Path) -> None:
    """Java's client and ours send to the neighbour zone, and to their own again when it is back.

    Java's client without the fallback has no broker left, as with Apache's NameServer.
    """
    settings = ClientSettings(name_servers=world.spilling[0], poll_seconds=1, zone_name="east", warm_up_seconds=0)
    with Driver(tmp_path / "clients", flags=_CLIENT_FLAGS) as clients, SyncRouteClient(settings) as ours:
        for name, servers in (("spilling", world.spilling), ("strict", world.strict)):
            clients.start_producer(name, servers, poll=1000)
            clients.start_stream(name, _TOPIC, name)
            until_equal({_EAST}, partial(_last_brokers, clients, name))
        clients.start_consumer("reader", world.spilling, _TOPIC, poll=1000)
        assert _chosen_by(ours) == {_EAST}
        assert _explained(world) == f"zone east: 1 master, 4 write queues {_RULE}"

        with leaves(world.daemons, world.east, "disconnected"):
            world.east.kill()

        until(lambda: _last_brokers(clients, "spilling") == {_WEST})
        failed = clients.events("failed", name="spilling")
        assert [entry for entry in failed if _NO_BROKER in entry["error"]] == []
        until_equal({_WEST}, lambda: _chosen_by(ours))
        zones = "zone east: 0 masters, 0 write queues; with zone west: 1 master, 4 write queues"
        assert _explained(world) == f"{zones} {_RULE}"
        until(lambda: any(_NO_BROKER in entry["error"] for entry in clients.events("failed", name="strict")))
        # After the return of zone east, its consumers no longer see zone west, nor the last messages in zone west.
        sent = clients.bodies("acked", name="spilling", broker=_WEST)
        until(lambda: sent <= clients.bodies("received", name="reader"))

        world.start_east_again()
        for name in ("spilling", "strict"):
            until_equal({_EAST}, partial(_last_brokers, clients, name))
            clients.halt_stream(name)
        until_equal({_EAST}, lambda: _chosen_by(ours))
        assert clients.events("failed", name="spilling") == failed


def _last_brokers(clients: Driver, name: str) -> set[str]:
    """The brokers of the last fifty messages of a producer."""
    return {entry["broker"] for entry in clients.events("acked", name=name)[-50:]}


def _chosen_by(client: SyncRouteClient) -> set[str]:
    """The brokers that our client chooses for twenty messages."""
    return {client.select_queue(_TOPIC).broker_name for _ in range(20)}


def _explained(world: World) -> str:
    """The explanation of the route of clients in zone east."""
    explained = run("-s", world.spilling[0], "route", _TOPIC, "--zone", "east", "--explain")
    (line,) = explained.problems
    return line.removeprefix(f"{world.spilling[0]}: topic {_TOPIC}: ")
