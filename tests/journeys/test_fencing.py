"""A removal meant for an older registration leaves the newer one alone."""

import pytest

from tests.support.broker import Broker
from tests.support.daemon import Start
from tests.support.peer import Connect

# nothing here depends on the loop
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER = Broker()
ROUTE, ORDERS = 105, {"topic": "orders"}


def test_stale_unregister_does_nothing(start: Start, connect: Connect) -> None:
    """A broker that registered anew over another connection is not removed by what was sent over the old one."""
    daemon = start()
    old, new, client = connect(daemon), connect(daemon), connect(daemon)
    BROKER.register(old)
    BROKER.register(new)

    assert 0 == BROKER.unregister(old)

    assert "unregistered" == daemon.wait_for("stale_removal_fenced", broker_name="broker-a")["reason"]
    assert 0 == client.ask(ROUTE, ORDERS).code
    assert [] == daemon.lines("broker_evicted")


def test_late_close_does_nothing(start: Start, connect: Connect) -> None:
    """The end of the old connection comes after the registration over the new one, and removes nothing."""
    daemon = start("--log-level", "debug")
    old, new, client = connect(daemon), connect(daemon), connect(daemon)
    BROKER.register(old)
    BROKER.register(new)

    address = old.address
    old.close()
    daemon.wait_for("connection_closed", peer=address)

    assert 0 == client.ask(ROUTE, ORDERS).code
    assert [] == daemon.lines("broker_evicted")
    new.close()
    assert "disconnected" == daemon.wait_for("broker_evicted")["reason"]
    assert 17 == client.ask(ROUTE, ORDERS).code


def test_heartbeat_over_a_new_connection_takes_the_broker_along(start: Start, connect: Connect) -> None:
    """A broker that reconnected and only sends heartbeats outlives its old connection, and not its new one."""
    daemon = start("--log-level", "debug")
    old, new, client = connect(daemon), connect(daemon), connect(daemon)
    BROKER.register(old)
    assert 0 == BROKER.heartbeat(new)

    address = old.address
    old.close()
    daemon.wait_for("connection_closed", peer=address)
    assert 0 == client.ask(ROUTE, ORDERS).code

    new.close()
    daemon.wait_for("broker_evicted", reason="disconnected")
    assert 17 == client.ask(ROUTE, ORDERS).code


def test_unregister_takes_effect_before_it_is_answered(start: Start, connect: Connect) -> None:
    """Whoever has said goodbye is gone when the answer comes."""
    daemon = start()
    broker, client = connect(daemon), connect(daemon)
    BROKER.register(broker)

    assert 0 == BROKER.unregister(broker)

    assert 17 == client.ask(ROUTE, ORDERS).code
    assert "unregistered" == daemon.wait_for("broker_evicted")["reason"]
