"""Evictions of dead brokers, and none of live ones."""

import signal
from datetime import datetime

import pytest

from tests.support.daemon import Start
from tests.support.peer import Broker, Connect, until

# tests/namesrv/net and tests/namesrv/server show the same on both event loops.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")
# Expiry of brokers that must send heartbeats in time: a busy machine may delay any process by a second.
EXPIRY = ("--scan-interval-seconds", "0.2", "--broker-expiry-seconds", "3")

ROUTE, ORDERS = 105, {"topic": "orders"}
LIST_BROKERS = 20005
TOPIC_NOT_EXIST = 17


def test_killed_broker_is_evicted_while_its_requests_wait(start: Start, connect: Connect) -> None:
    """A registration that arrives together with the end of its connection leaves no broker."""
    daemon = start("--log-level", "debug")
    peer = connect(daemon)
    address = peer.address
    peer.ask(106)
    BROKER_A.send_registration(peer)
    peer.close()
    daemon.wait_for("connection_closed", peer=address)

    # The close of the connection is handled last, in either order of arrival.
    client = connect(daemon, native=True)
    until(lambda: not client.call(LIST_BROKERS)["brokers"])
    assert client.ask(ROUTE, ORDERS).code == TOPIC_NOT_EXIST


@pytest.mark.slow
def test_stopped_server_evicts_no_live_broker(start: Start, connect: Connect) -> None:
    """After a stop longer than the expiry, the server extends the deadlines of brokers by that time."""
    daemon = start(*EXPIRY)
    alive, silent = connect(daemon, native=True), connect(daemon, native=True)
    BROKER_A.register(alive)
    BROKER_B.register(silent)

    daemon.send_signal(signal.SIGSTOP)
    question = alive.send(ROUTE, ORDERS)
    with pytest.raises(TimeoutError):
        alive.receive(4.0)
    daemon.send_signal(signal.SIGCONT)

    assert alive.receive().opaque == question
    late = daemon.wait_for("event_loop_lagged")
    assert late["seconds"] >= 3.0

    def silent_one_is_gone() -> bool:
        assert BROKER_A.heartbeat(alive) == 0
        return silent.is_closed_within(0.05)

    until(silent_one_is_gone)
    evicted = daemon.wait_for("broker_evicted")
    assert evicted["broker_name"] == "broker-b"
    # The eviction takes a while: the broker had most of its three seconds left when the server was stopped.
    passed = datetime.fromisoformat(evicted["ts"]) - datetime.fromisoformat(late["ts"])
    assert passed.total_seconds() > 0.3
    assert BROKER_A.heartbeat(alive) == 0
