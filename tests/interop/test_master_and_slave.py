"""A master and its slave find each other and serve through our NameServers, in both kinds of replication."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import FOUND_SOON, BrokerPeer, Role, leaves
from tests.interop.peers.driver import Driver
from tests.interop.peers.pair import BODIES, SLAVE_SECONDS, TOPIC, Pair
from tests.interop.peers.route import routes_of, until_routed
from tests.interop.peers.waiting import until

KINDS: Final[dict[str, tuple[BrokerPeer, Role]]] = {
    "5-async": ("broker-5", "ASYNC_MASTER"),
    "5-sync": ("broker-5", "SYNC_MASTER"),
    "4-async": ("broker-4", "ASYNC_MASTER"),
}


pytestmark = pytest.mark.parametrize("pair", KINDS, indirect=True)


@pytest.fixture(scope="module")
def pairs(place: Path, stack: ExitStack, clients: Driver) -> dict[str, Pair]:
    """A pair of each kind with its own NameServers; all pairs start, and get their messages, at the same time."""
    pairs = {
        kind: stack.enter_context(Pair(place / kind, *FOUND_SOON, peer=peer, role=role))
        for kind, (peer, role) in KINDS.items()
    }
    return {kind: pair.complete().filled(clients, f"p-{kind}") for kind, pair in pairs.items()}


def test_messages_arrive(pair: Pair, clients: Driver, unique: str) -> None:
    """A topic that a producer created is on both servers and brokers, and its messages reach a consumer."""
    for route in until_routed(pair.name_servers, TOPIC):
        assert route.queues == {pair.name: (4, 4, 6)}
        assert route.brokers == {pair.name: pair.members}

    clients.receive(unique, pair.name_servers, TOPIC, BODIES)


def test_slave_learns_its_master(pair: Pair, place: Path) -> None:
    """From our responses alone the slave learns the address for its log, and the master whose topics it copies."""
    until(pair.slave_is_filled, within=SLAVE_SECONDS)
    if pair.peer == "broker-5":
        # Version 4.9 does not have this request.
        with MqAdmin(place / "mqadmin", *pair.name_servers) as mqadmin:
            assert "#SlaveNum\t1" in mqadmin.succeed("haStatus", "-b", pair.master.address).stdout


def test_slave_serves_reads_when_the_master_is_killed(pair: Pair, clients: Driver, unique: str) -> None:
    """The master is removed from the route at once; a later consumer gets all messages from the slave."""
    until(pair.slave_is_filled, within=SLAVE_SECONDS)
    with leaves(pair.daemons, pair.master, "disconnected"):
        pair.master.kill()

    left = [None if route is None else route.brokers for route in routes_of(pair.name_servers, TOPIC)]
    assert left == [{pair.name: {1: pair.slave.address}}] * 2
    clients.receive(unique, pair.name_servers, TOPIC, BODIES)
