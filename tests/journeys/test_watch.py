"""A client that watches its routes hears when they change, and only then."""

from typing import Any

import pytest

from namesrv_remoting.bodies.extensions import from_msgpack, to_msgpack
from tests.support.broker import Broker
from tests.support.daemon import Daemon, Start
from tests.support.peer import Connect, Peer, until

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")

PULL_ROUTES, SERVER_INFO = 20001, 20002


class Watcher:
    """A client that keeps one question open, and the routes that it knows."""

    def __init__(self, daemon: Daemon, connect: Connect, *topics: str) -> None:
        self._peer: Peer = connect(daemon, native=True)
        self._operator: Peer = connect(daemon, native=True)
        self._topics = topics
        self.known: dict[str, Any] = self._peer.call(PULL_ROUTES, topics=topics)

    @property
    def brokers(self) -> dict[str, list[str] | None]:
        """Topic -> the names of its brokers, as in the last answer."""
        return {
            topic: route and [queues["broker_name"] for queues in route["queue_datas"]]
            for topic, route in self.known["routes"].items()
        }

    def ask(self, wait_ms: int = 60_000) -> None:
        """Ask what changes from here on; return once the server holds the question."""
        question = {"topics": self._topics, "boot_id": self.known["boot_id"], "since": self.known["revision"]}
        self._peer.send(PULL_ROUTES, None, to_msgpack({**question, "wait_ms": wait_ms}))
        until(lambda: self._operator.call(SERVER_INFO)["watchers"])

    def answer(self) -> dict[str, list[str] | None]:
        """Wait for the answer; what changed."""
        answer = self._peer.receive()
        assert 0 == answer.code, answer
        self.known = from_msgpack(answer.body)
        assert self.known["full"] is False
        return self.brokers


@pytest.fixture
def daemon(start: Start) -> Daemon:
    """A server with default settings."""
    return start()


def test_registration_wakes_a_watch(daemon: Daemon, connect: Connect) -> None:
    """A topic that did not exist is told as soon as a broker brings it, and again when another one does."""
    watcher = Watcher(daemon, connect, "orders")
    assert (True, {"orders": None}) == (watcher.known["full"], watcher.brokers)

    watcher.ask()
    BROKER_A.register(connect(daemon))
    assert {"orders": ["broker-a"]} == watcher.answer()

    watcher.ask()
    BROKER_B.register(connect(daemon))
    assert {"orders": ["broker-a", "broker-b"]} == watcher.answer()


def test_goodbye_wakes_a_watch(daemon: Daemon, connect: Connect) -> None:
    """A broker that unregisters leaves the routes that are watched; the last one leaves none."""
    first, second = connect(daemon), connect(daemon)
    BROKER_A.register(first)
    BROKER_B.register(second)
    watcher = Watcher(daemon, connect, "orders")

    watcher.ask()
    BROKER_A.unregister(first)
    assert {"orders": ["broker-b"]} == watcher.answer()

    watcher.ask()
    BROKER_B.unregister(second)
    assert {"orders": None} == watcher.answer()


def test_death_wakes_a_watch(daemon: Daemon, connect: Connect) -> None:
    """A broker whose connection breaks is out of the watched routes at once."""
    broker = connect(daemon)
    BROKER_A.register(broker)
    watcher = Watcher(daemon, connect, "orders")

    watcher.ask()
    broker.reset()

    assert {"orders": None} == watcher.answer()


def test_expiry_wakes_a_watch(start: Start, connect: Connect) -> None:
    """A broker that falls silent is out of the watched routes with the scan that finds it."""
    daemon = start("--scan-interval-seconds", "0.1", "--broker-expiry-seconds", "0.5")
    watcher = Watcher(daemon, connect, "orders")
    watcher.ask()
    BROKER_A.register(connect(daemon))
    assert {"orders": ["broker-a"]} == watcher.answer()

    watcher.ask()

    assert {"orders": None} == watcher.answer()


def test_other_topics_wake_nobody(daemon: Daemon, connect: Connect) -> None:
    """A watch sleeps through changes of topics that it did not name, and through registrations that change nothing."""
    peer = connect(daemon)
    BROKER_A.register(peer)
    watcher = Watcher(daemon, connect, "orders")

    watcher.ask(wait_ms=600)
    BROKER_A.register(peer)
    Broker(name="broker-c", addr="10.0.0.3:10911", topics=("refunds", "returns")).register(connect(daemon))

    assert {} == watcher.answer()


def test_many_watchers_are_all_woken(daemon: Daemon, connect: Connect) -> None:
    """As many questions as one connection may have open are all answered by one registration."""
    peer = connect(daemon, native=True)
    known = peer.call(PULL_ROUTES, topics=["orders"])
    question = {"topics": ["orders"], "boot_id": known["boot_id"], "since": known["revision"], "wait_ms": 60_000}
    asked = {peer.send(PULL_ROUTES, None, to_msgpack(question)) for _ in range(256)}
    operator = connect(daemon, native=True)
    until(lambda: operator.call(SERVER_INFO)["watchers"] == 256)

    BROKER_A.register(connect(daemon))

    assert asked == {peer.receive().opaque for _ in range(256)}


def test_watch_does_not_hold_up_other_questions(daemon: Daemon, connect: Connect) -> None:
    """On the connection of an open watch other questions are answered."""
    peer = connect(daemon, native=True)
    known = peer.call(PULL_ROUTES, topics=["orders"])
    question = {"topics": ["orders"], "boot_id": known["boot_id"], "since": known["revision"], "wait_ms": 60_000}
    peer.send(PULL_ROUTES, None, to_msgpack(question))

    assert 17 == peer.ask(105, {"topic": "orders"}).code
    assert 1 == peer.call(SERVER_INFO)["watchers"]


def test_watch_of_a_client_that_left_is_forgotten(daemon: Daemon, connect: Connect) -> None:
    """A watch ends with its connection."""
    watcher = Watcher(daemon, connect, "orders")
    watcher.ask()
    operator = connect(daemon, native=True)
    assert 1 == operator.call(SERVER_INFO)["watchers"]

    watcher._peer.close()

    until(lambda: not operator.call(SERVER_INFO)["watchers"])
