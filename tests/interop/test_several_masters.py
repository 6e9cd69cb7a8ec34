"""Masters of one cluster share topics, also static ones, through our NameServers; one of them is killed."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import FOUND_SOON, Broker, leaves
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import Route, brokers_of, members_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon

NAMES: Final = ("broker-a", "broker-b")
CLUSTER: Final = "DefaultCluster"

Masters = dict[str, Broker]


@pytest.fixture(scope="module")
def daemon_flags() -> tuple[str, ...]:
    """Flags with a short expiry, so that a hanging broker is evicted soon."""
    return FOUND_SOON


@pytest.fixture(scope="module")
def started(place: Path, stack: ExitStack, name_servers: list[str]) -> Masters:
    """Two masters, which start at the same time."""
    return {name: stack.enter_context(Broker(place / name, name_servers, name=name)) for name in NAMES}


@pytest.fixture
def masters(started: Masters, place: Path, stack: ExitStack, name_servers: list[str]) -> Masters:
    """Both masters, known to both NameServers; a killed master is started again."""
    for name, broker in started.items():
        if not broker.is_running:
            started[name] = stack.enter_context(Broker(place / name, name_servers, name=name, port=broker.port))
    for name, broker in started.items():
        address = broker.booted().address
        until_equal([{0: address}] * 2, lambda name=name: members_of(name_servers, name))  # type: ignore[misc]
    return started


def test_topic_of_the_cluster_is_on_every_master(
    masters: Masters, mqadmin: MqAdmin, clients: Driver, name_servers: list[str], unique: str
) -> None:
    """Each master has queues of a topic of the cluster, gets messages, and all of them are consumed."""
    topic = f"made-{unique}"
    mqadmin.succeed("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "2", "-w", "2")

    for route in until_routed(name_servers, topic):
        assert {name: {0: broker.address} for name, broker in masters.items()} == route.brokers
        assert dict.fromkeys(NAMES, (2, 2, 6)) == route.queues
    used = {(entry["broker"], entry["queue"]) for entry in clients.pass_on(unique, name_servers, topic)}
    assert {(name, queue) for name in NAMES for queue in (0, 1)} == used


def test_static_topic_spans_the_masters(
    masters: Masters, mqadmin: MqAdmin, clients: Driver, name_servers: list[str], unique: str
) -> None:
    """The route of a static topic contains the mapping of its queues, and a Java client sends and receives by it."""
    topic = f"static-{unique}"
    mqadmin.succeed("updateStaticTopic", "-c", CLUSTER, "-t", topic, "-qn", "6")

    placed = [_places(route) for route in until_routed(name_servers, topic)]
    # Together the masters hold every global queue once.
    assert [sorted(queue for _, queue in places) for places in placed] == [[0, 1, 2, 3, 4, 5]] * 2
    assert [{name for name, _ in places} for places in placed] == [set(NAMES)] * 2
    assert placed[0] == placed[1]
    # Each message went to the master that holds its queue.
    events = clients.pass_on(unique, name_servers, topic, 24)
    assert placed[0] == {(entry["broker"], entry["queue"]) for entry in events}


def test_producer_goes_on_with_the_other_master(
    masters: Masters,
    mqadmin: MqAdmin,
    clients: Driver,
    two_daemons: tuple[Daemon, Daemon],
    name_servers: list[str],
    unique: str,
) -> None:
    """When one master is killed no send fails, and the routes contain only the other master at once."""
    topic, dead, alive = f"made-{unique}", masters["broker-a"], masters["broker-b"]
    mqadmin.succeed("updateTopic", "-c", CLUSTER, "-t", topic, "-r", "2", "-w", "2")
    until_routed(name_servers, topic)
    clients.start_producer(unique, name_servers, poll=1000)
    clients.start_stream(unique, topic, unique)
    clients.wait_until(lambda: len(clients.events("acked", name=unique, broker="broker-a")) >= 5)

    with leaves(two_daemons, dead, "disconnected"):
        dead.kill()

    assert [brokers_of(address) for address in name_servers] == [{"broker-b": {0: alive.address}}] * 2
    for route in until_routed(name_servers, topic):
        assert route.brokers == {"broker-b": {0: alive.address}}
        assert route.queues == {"broker-b": (2, 2, 6)}
    since = len(clients.events("acked", name=unique, broker="broker-b"))
    clients.wait_until(lambda: len(clients.events("acked", name=unique, broker="broker-b")) >= since + 50)
    clients.halt_stream(unique)
    assert clients.events("failed", name=unique) == []
    clients.close(unique)


def _places(route: Route) -> set[tuple[str, int]]:
    """(master, global queue) for each global queue of a static topic."""
    mappings = route.data["topicQueueMappingByBroker"]
    assert {mapping["totalQueues"] for mapping in mappings.values()} == {6}
    return {(name, int(queue)) for name, mapping in mappings.items() for queue in mapping["currIdMap"]}
