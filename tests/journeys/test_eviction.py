"""A broker that died leaves the routes, and no other does."""

import contextlib
import re
import signal
import socket
import threading
import time
from datetime import datetime

import pytest

from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_native_body
from namesrv_remoting.bodies.topic import TopicConfig
from tests.support.daemon import Start
from tests.support.peer import Broker, Connect, until
from tests.support.spelling import native_frame

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")
BROKER_C = Broker(name="broker-c", addr="10.0.0.3:10911")
BROKER_D = Broker(name="broker-d", addr="10.0.0.4:10911")
# of brokers that have to send heartbeats in time: a busy machine may hold any process up for a second
EXPIRY = ("--scan-interval-seconds", "0.2", "--broker-expiry-seconds", "3")

ROUTE, ORDERS = 105, {"topic": "orders"}
LIST_BROKERS = 20005
TOPIC_NOT_EXIST = 17


def test_closed_connection_evicts_all_its_brokers(start: Start, connect: Connect) -> None:
    """A broker process that dies takes all brokers of its connection along, at once, and nobody else."""
    daemon = start()
    closed, reset, other, client = (connect(daemon) for _ in range(4))
    BROKER_A.register(closed)
    BROKER_D.register(closed)
    BROKER_B.register(reset)
    BROKER_C.register(other)

    closed.close()
    reset.reset()
    daemon.wait_for("broker_evicted", count=3)

    assert {("broker-a", "disconnected"), ("broker-b", "disconnected"), ("broker-d", "disconnected")} == {
        (line["broker_name"], line["reason"]) for line in daemon.lines("broker_evicted")
    }
    assert b'"broker-c":{' in client.ask(106).body
    assert not {b"broker-a", b"broker-b", b"broker-d"} & set(re.findall(rb"broker-.", client.ask(ROUTE, ORDERS).body))


def test_killed_broker_is_evicted_while_its_requests_wait(start: Start, connect: Connect) -> None:
    """A registration that arrives together with the end of its connection leaves nothing behind."""
    daemon = start("--log-level", "debug")
    peer = connect(daemon)
    address = peer.address
    peer.ask(106)
    BROKER_A.send_registration(peer)
    peer.close()
    daemon.wait_for("connection_closed", peer=address)

    # whichever came first, the end of the connection is the last word
    client = connect(daemon, native=True)
    until(lambda: not client.call(LIST_BROKERS)["brokers"])
    assert TOPIC_NOT_EXIST == client.ask(ROUTE, ORDERS).code


def test_disconnect_evicts_nobody_when_told_so(start: Start, connect: Connect) -> None:
    """With --no-evict-on-disconnect a broken connection says nothing; silence does."""
    daemon = start(*EXPIRY, "--no-evict-on-disconnect", "--log-level", "debug")
    broker, client = connect(daemon), connect(daemon)
    BROKER_A.register(broker)

    address = broker.address
    broker.close()
    daemon.wait_for("connection_closed", peer=address)

    assert "silent" == daemon.wait_for("broker_evicted")["reason"]
    assert TOPIC_NOT_EXIST == client.ask(ROUTE, ORDERS).code


@pytest.mark.slow
def test_stopped_server_evicts_nobody(start: Start, connect: Connect) -> None:
    """A server that was stopped for longer than the expiry blames itself: brokers get the time back."""
    daemon = start(*EXPIRY)
    alive, silent = connect(daemon, native=True), connect(daemon, native=True)
    BROKER_A.register(alive)
    BROKER_B.register(silent)

    daemon.send_signal(signal.SIGSTOP)
    question = alive.send(ROUTE, ORDERS)
    with pytest.raises(TimeoutError):
        alive.receive(4.0)
    daemon.send_signal(signal.SIGCONT)

    assert question == alive.receive().opaque
    late = daemon.wait_for("event_loop_lagged")
    assert late["seconds"] >= 3.0

    def silent_one_is_gone() -> bool:
        assert 0 == BROKER_A.heartbeat(alive)
        return silent.is_closed_within(0.05)

    until(silent_one_is_gone)
    evicted = daemon.wait_for("broker_evicted")
    assert "broker-b" == evicted["broker_name"]
    # not at once: it had most of its three seconds left when the server was stopped
    passed = datetime.fromisoformat(evicted["ts"]) - datetime.fromisoformat(late["ts"])
    assert passed.total_seconds() > 0.3
    assert 0 == BROKER_A.heartbeat(alive)


@pytest.mark.slow
def test_strangers_who_keep_the_loop_busy_keep_no_dead_broker(start: Start, connect: Connect) -> None:
    """They send the dearest thing there is, until ticks are late; a broker that is silent goes in time all the same."""
    daemon = start("--scan-interval-seconds", "1", "--broker-expiry-seconds", "2")
    # more topics than a registration may have
    body = encode_native_body(RegisterBrokerBody([TopicConfig(f"t{number}") for number in range(100_001)]))
    identity = {"brokerName": "c", "brokerAddr": "c:1", "clusterName": "c", "brokerId": "0"}
    frame = native_frame(103, 1, identity, body)
    ends = time.monotonic() + 8

    def keep_busy() -> None:
        with socket.create_connection(daemon.address) as stranger, contextlib.suppress(OSError):
            while time.monotonic() < ends:
                stranger.sendall(frame)

    strangers = [threading.Thread(target=keep_busy) for _ in range(24)]
    for stranger in strangers:
        stranger.start()
    silent = connect(daemon)
    BROKER_A.register(silent)

    evicted = daemon.wait_for("broker_evicted", broker_name="broker-a")

    for stranger in strangers:
        stranger.join()
    late = daemon.lines("event_loop_lagged")
    # what was work is not credited, only what other processes took from us
    assert all(line["stopped"] < line["seconds"] for line in late)
    (registered,) = daemon.lines("broker_registered", broker_name="broker-a")
    passed = datetime.fromisoformat(evicted["ts"]) - datetime.fromisoformat(registered["ts"])
    # expiry, scan, and a few passes of the loop until the last heartbeat was read and the broker judged
    longest = max((line["seconds"] for line in late), default=1.0)
    assert passed.total_seconds() <= 2 + 1 + sum(line["stopped"] for line in late) + 6 * longest
