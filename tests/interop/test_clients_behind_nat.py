"""Clients behind NAT reach brokers behind another NAT, because the NameServer shows them other addresses.

NAMESRV_SENDS is the number of messages of the Java producers, 3,000 if not given.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver, GoProducer
from tests.interop.peers.route import members_of
from tests.interop.peers.waiting import GUARD_SECONDS, until, until_equal
from tests.netns.nat import add_private_host, why_no_nat
from tests.netns.network import Host, Network, inside
from tests.support.daemon import Daemon

pytestmark = pytest.mark.needs("java", "javac", "mvn", "go")

_SENDS: Final = int(os.environ.get("NAMESRV_SENDS", "3000"))
_GO_SENDS: Final = 600
# The longest time of a send, on a machine with other work.
_SEND_SECONDS: Final = 0.05
_PRIVATE: Final = "10.99.0.2"
_PUBLIC: Final = "203.0.113.1"
_PORTS: Final = {"broker-a": 10911, "broker-b": 10921}
# Peers at the listener "outside" are outside of the brokers' network, whatever address NAT gives them.
_VIEWS: Final = f"""
[[views]]
name = "outside"
listeners = ["outside"]
[[views.brokers]]
registered = ["{_PRIVATE}"]
shown = "{_PUBLIC}:{{port+20000}}"
"""
_BROKERS: Final = {
    "brokerIP1": _PRIVATE,
    "brokerIP2": _PRIVATE,
    "bindAddress": "0.0.0.0",
}


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """A host with brokers and a host with clients, each behind a NAT of its own."""
    if (reason := why_no_nat()) is not None:
        assert os.geteuid() != 0 or "not allowed" in reason, reason
        pytest.skip(reason)
    ports = {9886: f"{_PRIVATE}:9886", **{port + 20000: f"{_PRIVATE}:{port}" for port in _PORTS.values()}}
    with Network() as network:
        network.add({"gate": _PUBLIC, "office": "203.0.113.2"})
        brokers = add_private_host(network, "brokers", _PRIVATE, network.hosts["gate"], ports)
        clients = add_private_host(network, "clients", "192.168.77.2", network.hosts["office"], {})
        yield brokers, clients


def test_no_send_fails_for_its_address(tmp_path: Path, hosts: tuple[Host, Host]) -> None:
    """Java and Go producers send on both sides while a broker is killed and comes back: each message arrives."""
    brokers, clients = hosts
    views = tmp_path / "views.toml"
    views.write_text(_VIEWS, encoding="utf-8")
    listen = ("--listen-host=0.0.0.0", "--listen-port=9876", "--listeners=outside=9886", f"--address-views={views}")
    near, far = [f"{_PRIVATE}:9876"], [f"{_PUBLIC}:9886"]

    def broker(name: str) -> Broker:
        with inside(brokers):
            return Broker(tmp_path / name, near, name=name, port=_PORTS[name], settings=_BROKERS)

    with inside(brokers):
        daemon = Daemon(tmp_path / "server", *listen)
        inner = Driver(tmp_path / "inner")
    with inside(clients):
        outer = Driver(tmp_path / "outer")
        go = GoProducer(tmp_path / "go", far)
    with daemon, inner, outer, go, broker("broker-a") as first, broker("broker-b") as second:
        for started in (first, second):
            started.booted()
        _until_known(clients, far)
        for driver, name_servers in ((inner, near), (outer, far)):
            driver.start_producer("p", name_servers, poll=1000, retries=4, timeout=10_000)
            # Both brokers create the topic with their first messages.
            assert len(driver.send("p", "orders", 40, f"first-{driver.home.name}")) == 40
        go.started()

        share = _SENDS // 2
        for driver in (inner, outer):
            driver.write_line(f"send p orders {share} {driver.home.name}")
        for number in range(_GO_SENDS):
            if number == _GO_SENDS // 2:
                second.kill()
            go.send("orders", f"go-{number}")
        with broker("broker-b") as returned:
            returned.booted()
            _until_known(clients, far)
            for driver in (inner, outer):
                # The last line of a finished send; each line is parsed once.
                driver.wait_until(
                    lambda driver=driver: '"sent"' in driver.lines[-1],  # type: ignore[misc]  # bound now
                    within=GUARD_SECONDS + share * _SEND_SECONDS,
                )
                bodies = driver.bodies("acked", name="p")
                assert {failed["error"] for failed in driver.failures()} == set()
                assert {f"{driver.home.name}-{number}" for number in range(share)} <= bodies
            # The Go client's sends to the killed broker fail, but with the broker's public address.
            assert all(f"{_PUBLIC}:{second.port + 20000}" in failed["error"] for failed in go.events("failed"))
            until(lambda: go.send("orders", "go-last"))
            outer.start_consumer("c", far, "orders", poll=1000)
            expected = inner.bodies("acked", name="p") | outer.bodies("acked", name="p") | go.bodies("acked")
            until_equal(len(expected), lambda: len(outer.bodies("received", name="c")))


def _until_known(clients: Host, name_servers: list[str]) -> None:
    """Wait until clients outside know both brokers by public addresses."""

    def known() -> dict[str, object]:
        with inside(clients):
            return {name: members_of(name_servers, name) for name in _PORTS}

    until_equal({name: [{0: f"{_PUBLIC}:{port + 20000}"}] for name, port in _PORTS.items()}, known)
