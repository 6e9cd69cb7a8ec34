"""A restarted server waits for its expected brokers before it answers route requests."""

import json
from collections.abc import Mapping

import pytest

from namesrv.state import snapshot
from tests.support.daemon import Daemon, Start
from tests.support.peer import Broker, Connect, Peer

# No test of this file depends on the event loop.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER_A = Broker(name="broker-a", addr="10.0.0.1:10911")
BROKER_B = Broker(name="broker-b", addr="10.0.0.2:10911")
BROKER_C = Broker(name="broker-c", addr="10.0.0.3:10911")

NOT_READY = (1, "name server not ready")
SERVER_INFO = 20002


def route_answer(peer: Peer) -> tuple[int, str | None]:
    """Code and remark of the response to a route request."""
    answer = peer.ask(105, {"topic": "orders"})
    return answer.code, answer.remark


def perms(peer: Peer) -> Mapping[str, int]:
    """The permission of the topic `orders` on each broker."""
    answer = peer.ask(105, {"topic": "orders"})
    assert answer.code == 0, answer
    return {queues["brokerName"]: queues["perm"] for queues in json.loads(answer.body)["queueDatas"]}


def expected_brokers(daemon: Daemon) -> list[str]:
    """The brokers for which the next boot will wait."""
    written = snapshot.load(daemon.data_dir / "snapshot.json")
    assert written is not None
    return [broker.broker_name for broker in written.brokers]


def test_ready_when_all_are_back(start: Start, connect: Connect) -> None:
    """Until both expected brokers are back, route requests are refused, and all other requests are answered.

    The server closes the connection of a refused client, which then tries another server, but not a broker's. A broker
    may come back with another address; brokers that unregistered are not expected.
    """
    daemon = start()
    first, second, third = (connect(daemon) for _ in range(3))
    for broker, peer in ((BROKER_A, first), (BROKER_B, second), (BROKER_C, third)):
        broker.register(peer)
    assert BROKER_C.unregister(third) == 0
    assert daemon.stop() == 0
    assert expected_brokers(daemon) == ["broker-a", "broker-b"]

    daemon = start("--scan-interval-seconds", "0.1")
    assert daemon.wait_for("listening")["ready"] is False
    assert "2 of 2 expected brokers: cluster-a/broker-a/0 at 10.0.0.1:10911" in daemon.wait_for("waiting")["reason"]
    back, operator = connect(daemon), connect(daemon, native=True)
    Broker(name="broker-a", addr="10.9.9.9:10911").register(back)
    assert [route_answer(back) for _ in range(2)] == [NOT_READY] * 2
    assert BROKER_A.heartbeat(back) == 0
    for native, code, ext_fields, body in [
        (False, 105, {"topic": "orders"}, b""),
        (True, 105, {"topic": "orders"}, b""),
        (True, 20001, None, b"\x81\xa6topics\x91\xa6orders"),
    ]:
        client = connect(daemon, native=native)
        answer = client.ask(code, ext_fields, body)
        assert (answer.code, answer.remark) == NOT_READY
        client.wait_until_closed()
    for code, asked in [(106, None), (206, None), (100, {"namespace": "NS", "key": "k", "value": "v"})]:
        assert operator.ask(code, asked).code == 0
    assert operator.call(SERVER_INFO)["ready"] is False

    BROKER_B.register(connect(daemon))
    assert perms(back) == {"broker-a": 6, "broker-b": 6}
    assert daemon.wait_for("ready")["reason"] == "ready: all 2 expected brokers are back"
    assert perms(connect(daemon)) == {"broker-a": 6, "broker-b": 6}
