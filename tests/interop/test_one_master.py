"""A single master registers with two of our NameServers, serves, and leaves in each possible way."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.peers.broker import FOUND_SOON, Broker, BrokerPeer, leaves
from tests.interop.peers.driver import ClientPeer, Driver
from tests.interop.peers.route import brokers_of, members_of, routes_of, topics_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon

StartAgain = Callable[[], Broker]


@pytest.fixture(scope="module")
def daemon_flags() -> tuple[str, ...]:
    """Flags with a short expiry, so that a hanging broker is evicted soon."""
    return FOUND_SOON


@pytest.fixture(scope="module", params=["broker-5", "broker-5.5", "broker-4"])
def start_again(request: pytest.FixtureRequest, place: Path, name_servers: list[str]) -> Iterator[StartAgain]:
    """A function that starts the broker, with the same port and store, unless it is running."""
    peer: BrokerPeer = request.param
    lives: list[Broker] = []
    with ExitStack() as stack:

        def start_again() -> Broker:
            if not lives or not lives[-1].is_running:
                port = lives[-1].port if lives else 0
                broker = Broker(place / peer, name_servers, name=f"{peer}-a", peer=peer, port=port)
                lives.append(stack.enter_context(broker))
            return lives[-1].booted()

        yield start_again


@pytest.fixture
def broker(start_again: StartAgain, name_servers: list[str]) -> Broker:
    """The broker, known to both NameServers."""
    broker = start_again()
    until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, broker.name))
    return broker


def test_master_is_in_the_route_with_id_0(broker: Broker, name_servers: list[str]) -> None:
    """Both NameServers have the broker and its default topics."""
    for route in until_routed(name_servers, "TBW102"):
        assert route.brokers == {broker.name: {0: broker.address}}
    for address in name_servers:
        assert {"TBW102", broker.name, broker.cluster} <= topics_of(address)


def test_topic_is_created_by_a_producer_and_consumed(
    broker: Broker, name_servers: list[str], clients: Driver, unique: str
) -> None:
    """A message to an unknown topic uses the route of TBW102; then both servers have the topic, and messages arrive."""
    clients.pass_on(unique, name_servers, f"auto-{unique}")

    for route in until_routed(name_servers, f"auto-{unique}"):
        assert route.brokers == {broker.name: {0: broker.address}}
        assert route.queues == {broker.name: (4, 4, 6)}


@pytest.mark.parametrize(
    ("start_again", "peer"),
    [("broker-5.5", "client-5.5"), ("broker-5.5", "client-4"), ("broker-4", "client-5.5")],
    indirect=["start_again"],
)
def test_messages_pass_between_clients_of_other_versions(
    broker: Broker, name_servers: list[str], tmp_path: Path, unique: str, peer: ClientPeer
) -> None:
    """Java clients older and newer than the broker create a topic, send and receive."""
    with Driver(tmp_path / "clients", peer=peer) as clients:
        clients.pass_on(unique, name_servers, f"auto-{unique}")
    for route in until_routed(name_servers, f"auto-{unique}"):
        assert route.brokers == {broker.name: {0: broker.address}}


def test_killed_broker_leaves_at_once(
    broker: Broker, two_daemons: tuple[Daemon, Daemon], name_servers: list[str], start_again: StartAgain
) -> None:
    """A broker killed by kill -9 leaves every route when its connection closes; a restart registers it again."""
    with leaves(two_daemons, broker, "disconnected"):
        broker.kill()

    assert [brokers_of(address) for address in name_servers] == [{}, {}]
    assert routes_of(name_servers, "TBW102") == [None, None]
    again = start_again()
    until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, again.name))


def test_clean_shutdown_unregisters(
    broker: Broker, two_daemons: tuple[Daemon, Daemon], name_servers: list[str]
) -> None:
    """A broker that shuts down unregisters from both servers before its connections close."""
    with leaves(two_daemons, broker, "unregistered"):
        broker.stop()

    assert [brokers_of(address) for address in name_servers] == [{}, {}]


# Version 5.5 behaves like 5.3 here, and each test waits for an expiry of 20 s.
@pytest.mark.parametrize("start_again", ["broker-5", "broker-4"], indirect=True)
def test_broker_that_hangs_is_found_by_the_scan(
    broker: Broker, two_daemons: tuple[Daemon, Daemon], name_servers: list[str]
) -> None:
    """A stopped process keeps its connections, so the scan evicts it; when it continues it registers again."""
    with leaves(two_daemons, broker, "silent"):
        broker.pause()

    assert [brokers_of(address) for address in name_servers] == [{}, {}]
    broker.resume()
    until_equal([{0: broker.address}] * 2, lambda: members_of(name_servers, broker.name))
