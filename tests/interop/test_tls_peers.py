"""Unmodified brokers, clients and tools with tls.enable=true, a NameServer that requires TLS, and the reverse.

RocketMQ's Go client 2.1.2 does not support TLS and needs tls-mode `permissive`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.support.certificates import Authority, Identity
from tests.support.ctl import run
from tests.support.daemon import Daemon


def java_flags(home: Path, ca: Authority, identity: Identity | None) -> tuple[str, ...]:
    """Flags with which a Java peer uses TLS, also to brokers: a system property and the file of Apache's manual."""
    settings: dict[str, object] = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": ca.ca_file,
    }
    if identity is not None:
        for side in ("client", "server"):
            settings |= {f"tls.{side}.certPath": identity.cert_file, f"tls.{side}.keyPath": identity.key_file}
    home.mkdir(parents=True, exist_ok=True)
    (home / "tls.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return ("-Dtls.enable=true", f"-Dtls.config.file={home / 'tls.properties'}")


class World:
    """A NameServer that requires certificates of its authority, and a broker with such a certificate."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place = place
        self.ca = Authority(place)
        self.identity = self.ca.issue("peer", common_name="peer")
        server = self.ca.issue("server")
        # The settings of Apache's NameServer, except the mode, which is a system property.
        properties = place / "tls.properties"
        properties.write_text(
            f"tls.test.mode.enable=false\ntls.server.need.client.auth=require\ntls.server.authClient=true\n"
            f"tls.server.certPath={server.cert_file}\ntls.server.keyPath={server.key_file}\n"
            f"tls.server.trustCertPath={self.ca.ca_file}\n"
        )
        flags = ("--tls-properties", str(properties), "--tls-mode", "enforcing")
        self.daemon = stack.enter_context(Daemon(place / "namesrv", *flags)).listening()
        self.address = "{}:{}".format(*self.daemon.address)
        home = place / "broker"
        self.broker = Broker(home, [self.address], flags=java_flags(home, self.ca, self.identity))
        stack.enter_context(self.broker).booted()
        self.daemon.wait_for("broker_registered", broker_name="broker-a")


@pytest.fixture
def mqadmin_of(place: Path) -> Iterator[Callable[..., MqAdmin]]:
    """A function that makes an mqadmin from a name, an address and flags."""
    with ExitStack() as stack:

        def start(name: str, address: str, flags: Sequence[str] = ()) -> MqAdmin:
            return stack.enter_context(MqAdmin(place / name, address, flags=flags))

        yield start


@pytest.fixture(scope="module")
def world(place: Path, stack: ExitStack) -> World:
    """The NameServer and the broker, started once for all tests."""
    return World(place, stack)


def test_broker_registers_over_tls(world: World) -> None:
    """A real broker with a certificate registers, and stays registered."""
    mine = world.identity
    shown = ("--tls-cert-file", str(mine.cert_file), "--tls-key-file", str(mine.key_file))
    found = run(
        "--tls", "--tls-ca-file", str(world.ca.ca_file), *shown, "-s", world.address, "brokers", "-o", "json"
    ).json["servers"][0]["brokers"]
    assert [broker["broker_addr"] for broker in found] == [world.broker.address]
    assert world.daemon.lines("broker_evicted") == []


def test_java_clients_over_tls(world: World) -> None:
    """A producer and a consumer exchange messages over TLS."""
    home = world.place / "clients"
    with Driver(home, flags=java_flags(home, world.ca, world.identity)) as clients:
        clients.pass_on("tls", [world.address], "TopicOfTls")


def test_mqadmin_in_plain_text_reads_why_it_is_refused(world: World, mqadmin_of: Callable[..., MqAdmin]) -> None:
    """The error of mqadmin contains our message, and so does the NameServer's log."""
    admin = mqadmin_of("plain", world.address)
    output = admin("clusterList")
    assert "CODE: 1  DESC: plain text received, but this server requires TLS" in output.stdout + output.stderr
    world.daemon.wait_for("connection_refused", reason="tls")


def test_namesrvctl_over_tls_to_apaches_server(world: World) -> None:
    """Our namesrvctl connects to Apache's NameServer over TLS; without TLS the connection is closed."""
    home = world.place / "apache"
    properties = java_flags(home, world.ca, world.identity)
    with ApacheNameServer(home, flags=("-Dtls.server.mode=enforcing", *properties)).booted() as apache:
        tls = ("--tls", "--tls-ca-file", str(world.ca.ca_file), "-s", apache.address)
        assert run(*tls, "kv", "put", "ns", "k", "v", "-y").code == 0
        assert "v" in run(*tls, "kv", "get", "ns", "k").out
        plain = run("-s", apache.address, "kv", "get", "ns", "k")
        assert (plain.code, "closed" in plain.err) == (2, True)
