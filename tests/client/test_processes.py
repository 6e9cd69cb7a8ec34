"""Producers and consumers keep their routes when processes die, freeze and start."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from namesrv_client import ClientSettings, SyncRouteClient
from namesrv_remoting.codes import Permission
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer, until

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")
WATCH = {"watch": True, "poll_seconds": 3600.0}


class Cluster:
    """NameServers in processes of their own, and brokers that are registered with them until the end."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        self._count = 0

    def namesrv(self, *brokers: Broker, port: int = 0) -> Daemon:
        """One more server, without a past; on a port that was another's, if there is one."""
        self._count += 1
        flags = ("--listen-port", str(port), "--drain-seconds", "0")
        daemon = self._stack.enter_context(Daemon(self._path / str(self._count), *flags)).listening()
        self.register(daemon, *brokers)
        return daemon

    def register(self, daemon: Daemon, *brokers: Broker) -> None:
        """More brokers of a server."""
        peer = self._stack.enter_context(Peer(daemon.address))
        for broker in brokers:
            broker.register(peer)

    def client(self, *daemons: Daemon, **values: Any) -> SyncRouteClient:
        """A client of these servers, which are asked in this order."""
        servers = ";".join(daemon.where for daemon in daemons)
        settings = ClientSettings(**{"name_servers": servers, "attempt_timeout_seconds": 0.5, **values})
        return self._stack.enter_context(SyncRouteClient(settings, shuffle=lambda _: None))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Nothing yet."""
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def brokers_of(client: SyncRouteClient, topic: str = "orders") -> list[str]:
    """The brokers of a topic, from memory."""
    known = client.cached(topic)
    return [] if known is None else list(known.brokers)


def test_a_server_that_freezes_or_is_killed_is_left_for_the_next(cluster: Cluster) -> None:
    """A frozen one's kernel goes on taking connections and bytes; the next is asked, watched, and tells."""
    first, second, third = (cluster.namesrv(BROKER_A) for _ in range(3))
    client = cluster.client(first, second, third, **WATCH, warm_up_seconds=0.0)
    client.route("orders")

    first.kill()
    assert client.refresh()
    second.send_signal(signal.SIGSTOP)
    assert ["broker-a"] == list(client.route("bills").brokers)
    cluster.register(third, BROKER_B)

    until(lambda: brokers_of(client) == ["broker-a", "broker-b"])
    second.send_signal(signal.SIGCONT)


def test_agents_and_clients_meet(cluster: Cluster) -> None:
    """A broker's agent creates a topic, changes it and leaves; a client that watches follows at once."""
    daemon = cluster.namesrv()
    client = cluster.client(daemon, **WATCH, warm_up_seconds=0.0)
    settings = AgentSettings(
        cluster_name="c1", broker_name="broker-z", broker_addr="10.0.0.26:10911", name_servers=daemon.where
    )
    with SyncBrokerAgent(settings, [TopicConfig("orders", 4, 4), TopicConfig("TBW102", 8, 8, 7)]) as agent:
        assert 1 == agent.registered()
        assert ["broker-z"] == list(client.route("orders").brokers)
        assert 4 == client.publish_info("new").count
        agent.create_topic(TopicConfig("new", 2, 2))
        until(lambda: brokers_of(client, "new") == ["broker-z"])
        assert 2 == client.publish_info("new").count
        agent.set_perm("new", Permission.READ)
        until(lambda: client.route("new").data.queue_datas[0].perm == 4)

    until(lambda: client.route("orders").confirmed_absent_since is not None)
    assert "10.0.0.26:10911" == client.master_of("broker-z")
