"""The agent for threads: all methods, start, stop, drain and callbacks."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, MasterInfo, SyncBrokerAgent, TopicConfig, TopicStateError
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


def test_start_register_stop(namesrv: Daemon, name: str) -> None:
    """A started agent has one thread; second calls do nothing; stopping unregisters."""
    agent = SyncBrokerAgent(settings_of(namesrv, name), [ORDERS])
    assert agent_threads() == []
    agent.start()
    agent.start()
    assert (agent.registered(), len(agent_threads())) == (1, 1)
    (state,) = agent.servers.values()
    assert (namesrv.where, "registered", "native") == (state.address, state.status, state.protocol)
    assert state.last_error is None
    assert (agent.topics, routes_of(namesrv, name, "orders")) == ({"orders": ORDERS}, {"orders": 6})
    agent.stop()
    agent.stop()

    namesrv.wait_for("broker_evicted", broker_name=name, reason="unregistered")
    assert (agent_threads(), repr(agent)) == ([], "<SyncBrokerAgent [not started]>")


VERBS: tuple[Callable[[SyncBrokerAgent], object], ...] = (
    lambda agent: agent.registered(),
    lambda agent: agent.create_topic(BILLS),
    lambda agent: agent.update_topic(ORDERS),
    lambda agent: agent.delete_topic("orders"),
    lambda agent: agent.set_perm("orders", Permission.READ),
    lambda agent: agent.replace_topics([]),
    lambda agent: agent.promote(),
    lambda agent: agent.demote(1),
    lambda agent: agent.drain(),
    lambda agent: agent.topics,
)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["before start", "after stop"])
def test_methods_of_an_agent_that_is_not_started(namesrv: Daemon, *, is_stopped: bool) -> None:
    """Methods that need the thread raise a clear error, and the others return their value."""
    agent = SyncBrokerAgent(settings_of(namesrv, "idle", name_servers="127.0.0.1:1"), [ORDERS])
    if is_stopped:
        agent.start()
    agent.stop()

    for verb in VERBS:
        with pytest.raises(RuntimeError, match=r"^the agent is not started$"):
            verb(agent)
    assert (agent.servers, agent.master) == ({}, None)


def test_failed_start_leaves_nothing(namesrv: Daemon, name: str, tmp_path: Path) -> None:
    """Wrong arguments fail at once, and a damaged state file in start(), which may be repeated."""
    path = tmp_path / "topics.json"
    settings = settings_of(namesrv, name, state_file=path)
    with pytest.raises(ValueError, match=r"^topic orders is listed twice$"):
        SyncBrokerAgent(settings, [ORDERS, ORDERS])
    with pytest.raises(TypeError, match="colour"):
        SyncBrokerAgent(settings, colour="red")
    path.write_text("damaged")
    agent = SyncBrokerAgent(settings, [ORDERS])
    with pytest.raises(TopicStateError, match=f"^state file {path}"):
        agent.start()
    assert agent_threads() == []

    path.unlink()
    with agent:
        assert agent.registered() == 1


def test_eight_threads_create_topics(namesrv: Daemon, name: str) -> None:
    """All topics exist, each change is counted once, and an error reaches its own thread."""
    with SyncBrokerAgent(settings_of(namesrv, name)) as agent, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> int:
            agent.create_topic(TopicConfig(f"{name}-{number % 80}"))
            return len(agent.topics) + len(agent.servers)

        results = [pool.submit(work, number) for number in range(96)]
        errors = [str(result.exception()) for result in results if result.exception() is not None]
        assert sorted(f"topic {name}-{number} exists already" for number in range(16)) == sorted(errors)
        assert agent.registered() == 1

        topics = [f"{name}-{number}" for number in range(80)]
        assert dict.fromkeys(topics, 6) == routes_of(namesrv, name, *topics)
        with Peer(namesrv.address, native=True) as peer:
            (broker,) = peer.call(20005, broker_name=name)["brokers"]
        assert broker["data_version"]["counter"] == 80


def test_all_methods(namesrv: Daemon, name: str) -> None:
    """Each method reaches the server or raises its error."""
    with SyncBrokerAgent(settings_of(namesrv, name), [ORDERS]) as agent:
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
        with pytest.raises(ValueError, match=r"^not the id of a slave: 0 \(must be 1 or more\)$"):
            agent.demote(0)
        agent.registered()

        with Peer(namesrv.address, native=True) as peer:
            (broker,) = peer.call(20005, broker_name=name)["brokers"]
        assert (broker["broker_id"], broker["data_version"]["state_version"]) == (0, 7)
        assert routes_of(namesrv, name, "orders", "bills") == {"orders": None, "bills": None}


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


class MisbehavingCallback:
    """A callback that uses the agent and fails; it records its values, its thread and the errors."""

    def __init__(self) -> None:
        self.agent: SyncBrokerAgent | None = None
        self.news: list[object] = []
        self.threads: set[threading.Thread] = set()
        self.errors: set[str] = set()
        self._happened = threading.Event()

    def __call__(self, news: object = None) -> dict[str, int]:
        """Use the agent, then raise."""
        assert self.agent is not None
        self.news.append(news)
        self.threads.add(threading.current_thread())
        uses: list[Callable[[SyncBrokerAgent], object]] = [
            lambda agent: agent.stop(),
            lambda agent: agent.servers,
            *VERBS,
        ]
        for use in uses:
            try:
                use(self.agent)
            except RuntimeError as error:
                self.errors.add(str(error))
        self._happened.set()
        raise ZeroDivisionError("in the broker's own code")

    def wait(self) -> None:
        assert self._happened.wait(GUARD_SECONDS)


OWN_THREAD = "cannot be called from the agent's own callbacks: it would deadlock"


def test_callbacks_run_in_the_agents_thread(namesrv: Daemon, name: str) -> None:
    """A callback that uses the agent gets an error, a failing one does no harm, and a master is reported once."""
    master_changed, state = MisbehavingCallback(), MisbehavingCallback()
    master = SyncBrokerAgent(settings_of(namesrv, name, ha_server_addr="10.0.0.1:10912"), [ORDERS])
    slave = SyncBrokerAgent(
        settings_of(namesrv, name, broker_addr="10.0.0.2:10911", broker_id=1, heartbeat_seconds=0.02),
        [ORDERS],
        on_master_changed=master_changed,
        state=state,
    )
    master_changed.agent = state.agent = slave
    with master:
        master.registered()
        with slave:
            master_changed.wait()
            state.wait()
            slave.create_topic(BILLS)
            assert slave.registered() == 1
            assert MasterInfo(f"{name}:10911", "10.0.0.1:10912") == slave.master
            assert [slave.master] == master_changed.news
            assert sorted(slave.topics.values(), key=lambda topic: topic.topic_name) == [BILLS, ORDERS]
    for one in (master_changed, state):
        assert {"namesrv-broker-agent"} == {thread.name for thread in one.threads}
        assert {OWN_THREAD} == one.errors
