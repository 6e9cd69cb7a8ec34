"""The test kit: each test is an example from the kit's manual."""

import time
from collections.abc import Callable

import pytest

from namesrv_testing import TestBroker, TestClient, TestClock, TestNameServer

Brokers = Callable[..., TestBroker]
Clients = Callable[..., TestClient]


def test_route_of_a_broker(namesrv: TestNameServer, namesrv_broker: Brokers, namesrv_client: Clients) -> None:
    """A broker registers, and a client finds it."""
    namesrv_broker("broker-a", ["orders"])

    route = namesrv_client().route("orders")

    assert list(route.brokers) == ["broker-a"]
    assert namesrv.broker_names == {"broker-a"}
    assert "orders" in namesrv.topics


def test_silent_broker_is_evicted(namesrv: TestNameServer, namesrv_broker: Brokers) -> None:
    """One of two brokers freezes, and two and a quarter minutes pass at once."""
    frozen, _ = namesrv_broker("broker-a"), namesrv_broker("broker-b")
    frozen.freeze()

    namesrv.clock.advance(135.0)

    assert namesrv.broker_names == {"broker-b"}
    frozen.thaw()
    namesrv.clock.advance(35.0)
    assert namesrv.broker_names == {"broker-a", "broker-b"}


def test_dead_broker_is_evicted_at_once(namesrv: TestNameServer, namesrv_broker: Brokers) -> None:
    """The broker's connection closes."""
    broker = namesrv_broker("broker-a")

    broker.kill()

    namesrv.clock.advance(1.0)
    assert namesrv.broker_names == set()


def test_one_name_in_place_of_a_list_of_topics_is_refused(namesrv_broker: Brokers) -> None:
    """The letters of the name would become topics."""
    with pytest.raises(TypeError, match=r"^topics: 'bills' is one name, not a list of topics$"):
        namesrv_broker("broker-a", "bills")


def test_broker_dies_while_its_server_is_frozen(namesrv: TestNameServer, namesrv_broker: Brokers) -> None:
    """The server evicts the broker when it continues."""
    broker = namesrv_broker("broker-a")
    namesrv.freeze()

    broker.kill()

    namesrv.thaw()
    namesrv.clock.advance(1.0)
    assert namesrv.broker_names == set()


def test_call_to_a_frozen_server_is_an_error(namesrv: TestNameServer, namesrv_broker: Brokers) -> None:
    """A call that would wait for the end of the freeze fails at once."""
    broker = namesrv_broker("broker-a")
    with namesrv.frozen(), pytest.raises(RuntimeError, match=r"^the test's NameServer is frozen: thaw\(\) it first$"):
        _ = namesrv.broker_names
    broker.freeze()
    with pytest.raises(RuntimeError, match=r"^the agent is frozen: thaw\(\) it first$"):
        broker.registered()


def test_client_survives_a_server(
    namesrv_factory: Callable[..., TestNameServer], namesrv_broker: Brokers, namesrv_client: Clients
) -> None:
    """One of two servers freezes, and the other one responds."""
    servers = [namesrv_factory(), namesrv_factory()]
    namesrv_broker("broker-a", ["orders", "payments"], servers=servers)
    client = namesrv_client(servers=servers)
    client.route("orders")
    asked = next(server for server in servers if server.address == client.chosen_server)

    with asked.frozen():
        assert list(client.route("payments").brokers) == ["broker-a"]


def test_routes_survive_a_restart(namesrv: TestNameServer, namesrv_broker: Brokers, namesrv_client: Clients) -> None:
    """The agent registers again by itself."""
    broker = namesrv_broker("broker-a", ["orders"])
    address = namesrv.address

    namesrv.restart()
    namesrv.clock.advance(3.0)
    broker.registered()

    assert namesrv.address == address
    assert namesrv_client().route("orders").brokers


def test_settings_are_the_daemons(namesrv_factory: Callable[..., TestNameServer]) -> None:
    """Settings are the daemon's, with the same validation."""
    assert namesrv_factory(broker_expiry_seconds=5.0).port > 0
    with pytest.raises(ValueError, match="broker_expiry_seconds"):
        namesrv_factory(broker_expiry_seconds="soon")


def test_session_server_and_no_pytest(namesrv_session: TestNameServer) -> None:
    """The server is usable as a plain class, and its broker unregisters at the end."""
    with TestBroker([namesrv_session], "broker-a"):
        assert namesrv_session.broker_names == {"broker-a"}
    assert namesrv_session.broker_names == set()


def test_clock_never_goes_back() -> None:
    """The clock also runs by itself."""
    clock = TestClock()
    before, wall = clock.monotonic(), time.time()

    clock.advance(60.0)

    assert clock.monotonic() >= before + 60.0
    assert clock.wall() >= wall + 60.0
    with pytest.raises(ValueError, match="-1"):
        clock.advance(-1)
