"""A client that watches its routes hears when they change, and only then."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from namesrv_remoting.bodies.dialects import NATIVE
from tests.support.daemon import Daemon, Start
from tests.support.peer import Broker, Connect, Peer, until

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")

PULL_ROUTES, SERVER_INFO = 20001, 20002


class Watcher:
    """A client that keeps questions open, and what it knows of one topic."""

    def __init__(self, daemon: Daemon, connect: Connect) -> None:
        self.peer: Peer = connect(daemon, native=True)
        self._operator: Peer = connect(daemon, native=True)
        self.known: dict[str, Any] = self.peer.call(PULL_ROUTES, topics=["orders"])

    def ask(self, wait_ms: int = 60_000) -> int:
        """Ask what changes from here on; the question's opaque."""
        since = {"boot_id": self.known["boot_id"], "since": self.known["revision"]}
        return self.peer.send(PULL_ROUTES, None, NATIVE.encode({"topics": ["orders"], **since, "wait_ms": wait_ms}))

    def watches(self) -> int:
        """How many questions the server holds."""
        return int(self._operator.call(SERVER_INFO)["watchers"])

    def sleep(self, wait_ms: int = 60_000) -> None:
        """Ask, and return once the server holds the question."""
        self.ask(wait_ms)
        until(self.watches)

    def woken(self) -> dict[str, list[str] | None]:
        """Wait for the answer; the topics that changed, with their brokers."""
        answer = self.peer.receive()
        assert 0 == answer.code, answer
        self.known = msgspec.msgpack.decode(answer.body)
        assert self.known["full"] is False
        return {
            topic: route and [queues["broker_name"] for queues in route["queue_datas"]]
            for topic, route in self.known["routes"].items()
        }


def test_changes_of_the_route_wake_a_watch(start: Start, connect: Connect) -> None:
    """A registration, a goodbye and a death are told at once; other topics and what changes nothing are slept through.

    A topic that did not exist is told as soon as a broker brings it, and one that the last broker has left is none.
    """
    daemon = start()
    first, second = connect(daemon), connect(daemon)
    watcher = Watcher(daemon, connect)
    assert (True, {"orders": None}) == (watcher.known["full"], watcher.known["routes"])
    steps: list[tuple[Callable[[], object], list[str] | None]] = [
        (partial(BROKER_A.register, first), ["broker-a"]),
        (partial(BROKER_B.register, second), ["broker-a", "broker-b"]),
        (partial(BROKER_A.unregister, first), ["broker-b"]),
        (second.reset, None),
        (partial(BROKER_A.register, first), ["broker-a"]),
    ]
    for change, told in steps:
        watcher.sleep()
        change()
        assert {"orders": told} == watcher.woken()

    watcher.sleep(wait_ms=600)
    BROKER_A.register(first)
    Broker(name="broker-c", addr="10.0.0.3:10911", topics=("refunds", "returns")).register(connect(daemon))
    assert {} == watcher.woken()


def test_expiry_wakes_a_watch(start: Start, connect: Connect) -> None:
    """A broker that falls silent is out of the watched routes with the scan that finds it."""
    daemon = start("--scan-interval-seconds", "0.1", "--broker-expiry-seconds", "0.5")
    watcher = Watcher(daemon, connect)
    watcher.sleep()
    BROKER_A.register(connect(daemon))
    assert {"orders": ["broker-a"]} == watcher.woken()

    watcher.sleep()

    assert {"orders": None} == watcher.woken()


def test_many_watches_of_one_connection(start: Start, connect: Connect) -> None:
    """They hold up no other question, all are woken by one registration, and those of a client that left are forgotten.

    There are as many as one connection may have open.
    """
    daemon = start()
    watcher = Watcher(daemon, connect)
    watcher.ask()
    assert 17 == watcher.peer.ask(105, {"topic": "orders"}).code
    asked = {watcher.ask() for _ in range(255)}
    until(lambda: watcher.watches() == 256)

    BROKER_A.register(connect(daemon))
    assert asked < {watcher.peer.receive().opaque for _ in range(256)}

    watcher.known["revision"] += 1
    left = Watcher(daemon, connect)
    left.sleep()
    left.peer.close()
    until(lambda: not watcher.watches())
