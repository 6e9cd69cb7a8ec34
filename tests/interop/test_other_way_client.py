"""Our client with two, one and none of Apache's NameServers running."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteUnavailableError, SyncRouteClient, TopicNotFoundError
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.route import brokers_of, route_of
from tests.interop.peers.waiting import until, until_equal
from tests.support.ports import free_port


class Pair:
    """Two of Apache's NameServers, which can be killed and restarted, and a broker registered with both."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack
        self._running = [self._start(number, free_port()) for number in (0, 1)]
        for server in self._running:
            server.booted()
        self.addresses = [server.address for server in self._running]
        settings = AgentSettings(
            cluster_name="cluster",
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            name_servers=";".join(self.addresses),
            heartbeat_seconds=1,
            protocol="rocketmq",
        )
        topics = [TopicConfig(f"topic-{number}", 4, 4) for number in range(10)]
        self._stack.enter_context(SyncBrokerAgent(settings, topics)).registered()

    def _start(self, number: int, port: int) -> ApacheNameServer:
        return self._stack.enter_context(ApacheNameServer(self._place / f"apache-{number}", port=port))

    def kill(self, number: int) -> None:
        self._running[number].kill()

    def start_again(self, number: int) -> None:
        """Start a server again; return as soon as it knows the broker."""
        self._running[number] = self._start(number, self._running[number].port).booted()
        until_equal({"broker-a": {0: "10.0.0.1:10911"}}, lambda: brokers_of(self.addresses[number]))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """New servers for each test, since the tests kill them."""
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)


def client(addresses: list[str]) -> SyncRouteClient:
    """A client that polls every second, and detects that the servers are Apache's."""
    return SyncRouteClient(ClientSettings(name_servers=";".join(addresses), poll_seconds=1, warm_up_seconds=0))


def brokers(routes: SyncRouteClient, topic: str) -> list[str]:
    """The brokers in the route of a topic."""
    return list(routes.route(topic).brokers)


def test_client_fails_over_and_survives_without_any(pair: Pair) -> None:
    """Each server is killed once; without servers cached routes stay, and other topics raise RouteUnavailableError."""
    with client(pair.addresses) as routes:
        assert brokers(routes, "topic-0") == ["broker-a"]
        pair.kill(0)
        assert brokers(routes, "topic-1") == ["broker-a"]
        pair.start_again(0)
        pair.kill(1)
        assert brokers(routes, "topic-2") == ["broker-a"]

        pair.kill(0)

        assert not routes.refresh()
        assert [brokers(routes, f"topic-{number}") for number in range(3)] == [["broker-a"]] * 3
        assert routes.select_queue("topic-1").broker_name == "broker-a"
        with pytest.raises(RouteUnavailableError):
            routes.route("topic-3")
        pair.start_again(1)
        until(routes.refresh)
        assert brokers(routes, "topic-3") == ["broker-a"]


def test_client_finds_what_mqadmin_and_a_real_broker_made(place: Path, stack: ExitStack) -> None:
    """The client has the route of a topic on a real broker, queue by queue; a missing topic is TopicNotFoundError."""
    server = stack.enter_context(ApacheNameServer(place / "apache")).booted()
    broker = stack.enter_context(Broker(place / "broker", [server.address], name="real")).booted()
    admin = stack.enter_context(MqAdmin(place / "mqadmin", server.address))
    admin.make_topics(broker.address, "made", read=3, write=2)
    until(lambda: route_of(server.address, "made"))
    with client([server.address]) as routes:
        route = routes.route("made")

        assert {name: dict(data.broker_addrs) for name, data in route.brokers.items()} == {"real": {0: broker.address}}
        assert sorted({(queue.broker_name, queue.queue_id) for queue in routes.publish_info("made").queues}) == [
            ("real", 0),
            ("real", 1),
        ]
        assert broker.address == routes.master_of("real")
        with pytest.raises(TopicNotFoundError):
            routes.route("no-such-topic")
