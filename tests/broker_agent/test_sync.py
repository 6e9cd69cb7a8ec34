"""The agent for threads: all methods, start, stop, drain and callbacks."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig, TopicStateError
from namesrv_broker_agent.sync import StoppedError
from namesrv_remoting.codes import Permission
from tests.support.agents import wait_until_routed
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Peer

ORDERS = TopicConfig("orders", 8, 8)
BILLS = TopicConfig("bills", 4, 4)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The broker name of this test."""
    return str(request.node.name)


def settings_of(namesrv: Daemon, name: str, **values: Any) -> AgentSettings:
    """Settings of a broker with an address of its own."""
    return AgentSettings(
        **{
            "cluster_name": "c1",
            "broker_name": name,
            "broker_addr": f"{name}:10911",
            "name_servers": namesrv.where,
            **values,
        }
    )


def routes_of(namesrv: Daemon, name: str, *topics: str) -> dict[str, int | None]:
    """Permission of topics on a broker as clients see it; None without a route."""
    with Peer(namesrv.address, native=True) as peer:
        routes = peer.call(20001, topics=list(topics))["routes"]
    return {
        topic: next((queues["perm"] for queues in route["queue_datas"] if queues["broker_name"] == name), None)
        if route
        else None
        for topic, route in routes.items()
    }


def agent_threads() -> list[threading.Thread]:
    """Live threads of agents."""
    return [thread for thread in threading.enumerate() if thread.name == "namesrv-broker-agent"]


def test_agent_that_is_not_started(namesrv: Daemon) -> None:
    """A call that needs the thread is an error, before the start and after the stop; the others return their value."""
    agent = SyncBrokerAgent(settings_of(namesrv, "idle", name_servers="127.0.0.1:1"), [ORDERS])
    agent.stop()
    with pytest.raises(RuntimeError, match=r"^the agent is not started$"):
        agent.drain()
    calls: list[Callable[[], object]] = [agent.registered, lambda: agent.topics]
    for _ in range(2):
        for call in calls:
            with pytest.raises(RuntimeError, match=r"^the agent is not started$"):
                call()
        assert (agent.servers, agent.master, agent.broker_id, agent.name_servers_error) == ({}, None, 0, None)
        agent.start()
        agent.stop()
    # The broker has left already, as a drain wants it.
    agent.drain()


def test_failed_start_leaves_nothing(namesrv: Daemon, name: str, tmp_path: Path) -> None:
    """Wrong arguments fail at once, and a damaged state file in start(), which may be repeated."""
    path = tmp_path / "topics.json"
    settings = settings_of(namesrv, name, state_file=path)
    with pytest.raises(ValueError, match=r"^topic orders is listed twice$"):
        SyncBrokerAgent(settings, [ORDERS, ORDERS])
    with pytest.raises(TypeError, match="colour"):
        SyncBrokerAgent(settings, colour="red")  # type: ignore[call-arg]  # the type checker refuses it, too
    path.write_text("damaged")
    agent = SyncBrokerAgent(settings, [ORDERS])
    with pytest.raises(TopicStateError, match=f"^state file {path}"):
        agent.start()
    assert agent_threads() == []

    path.unlink()
    with agent:
        assert agent.registered() == 1


def test_all_methods(namesrv: Daemon, name: str) -> None:
    """Each method reaches the server or raises its error; a second start or stop does nothing."""
    agent = SyncBrokerAgent(settings_of(namesrv, name), [ORDERS])
    agent.start()
    agent.start()
    assert (agent.registered(), len(agent_threads())) == (1, 1)
    assert (agent.status().is_ready, agent.master, agent.broker_id, agent.name_servers_error) == (True, None, 0, None)
    assert [state.status for state in agent.servers.values()] == ["registered"]
    assert (agent.topics, routes_of(namesrv, name, "orders")) == ({"orders": ORDERS}, {"orders": 6})

    agent.create_topic(BILLS)
    agent.set_perm("bills", Permission.READ)
    agent.update_topic(TopicConfig("orders", 1, 1, 2))
    agent.registered()
    assert routes_of(namesrv, name, "orders", "bills") == {"orders": 2, "bills": 4}
    done = agent.replace_topics([BILLS])
    assert (done.changed, done.deleted) == ((BILLS,), ("orders",))
    agent.delete_topic("bills")
    with pytest.raises(ValueError, match=r"^topic 'bills' does not exist$"):
        agent.delete_topic("bills")
    agent.demote(3)
    agent.promote(7)
    agent.registered()
    with Peer(namesrv.address, native=True) as peer:
        (broker,) = peer.call(20005, broker_name=name)["brokers"]
    assert (broker["broker_id"], broker["data_version"]["state_version"]) == (0, 7)
    assert routes_of(namesrv, name, "orders", "bills") == {"orders": None, "bills": None}

    agent.stop()
    agent.stop()
    namesrv.wait_for("broker_evicted", broker_name=name, reason="unregistered")
    assert (agent_threads(), repr(agent)) == ([], "<SyncBrokerAgent [not started]>")


def test_role_is_kept_until_the_next_start(namesrv: Daemon, name: str) -> None:
    """A slave that a controller has elected master registers as master again, with the same state version."""
    agent = SyncBrokerAgent(settings_of(namesrv, name, broker_id=1), [ORDERS])
    with agent:
        agent.promote(7)
    assert agent.status().broker_id == 0

    with agent, Peer(namesrv.address, native=True) as peer:
        agent.registered()
        (broker,) = peer.call(20005, broker_name=name)["brokers"]
    assert (broker["broker_id"], broker["data_version"]["state_version"]) == (0, 7)


def test_stop_ends_waiting_calls_of_other_threads(namesrv: Daemon, name: str) -> None:
    """Waiting calls get an error; a drain returns."""
    with_a_dead_one = f"{namesrv.where};127.0.0.1:1"
    settings = settings_of(namesrv, name, name_servers=with_a_dead_one, client_poll_seconds=3600.0)
    agent = SyncBrokerAgent(settings, [ORDERS, BILLS])
    agent.start()
    agent.registered(count=1)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(agent.registered, count=2, timeout_seconds=3600.0)
        draining = pool.submit(agent.drain)
        wait_until_routed(namesrv, name, orders=4, bills=4)
        assert not draining.done()
        agent.stop()

        assert draining.result(GUARD_SECONDS) is None
        with pytest.raises(StoppedError, match=r"^the agent was stopped$"):
            waiting.result(GUARD_SECONDS)
    assert routes_of(namesrv, name, "orders", "bills") == {"orders": None, "bills": None}
    assert agent_threads() == []


class _StoppedByAnother(SyncBrokerAgent):
    """Another thread stops the agent when this one begins a call, after the agent was started."""

    def _check_other_thread(self) -> None:
        if self.status().is_started and threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.stop).result(GUARD_SECONDS)
        super()._check_other_thread()


def test_drain_of_an_agent_that_another_thread_stops_at_that_moment(namesrv: Daemon, name: str) -> None:
    """The broker has left, as a drain wants it, also by the first stop of the agent."""
    agent = _StoppedByAnother(settings_of(namesrv, name), [ORDERS])
    with ThreadPoolExecutor(1) as pool:
        pool.submit(agent.start).result(GUARD_SECONDS)

    agent.drain()
    assert agent_threads() == []
