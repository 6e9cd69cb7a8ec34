"""Unmodified brokers, clients and tools that sign, and a NameServer with an access file.

The broker itself checks no signature. By default a RocketMQ signature counts for routes and brokers only; the
operator's account accepts it for administration, since mqadmin has no other.
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver, GoConsumer, GoProducer
from tests.interop.peers.waiting import until
from tests.support.ctl import run
from tests.support.daemon import Daemon

ACCESS: Final = """
[accounts.broker]
secrets = ["broker-secret"]
may = ["route-read", { access = "broker-control", clusters = ["DefaultCluster"], brokers = ["broker-a"] }]

[accounts.application]
secrets = ["new-secret", "old-secret"]
may = ["route-read"]

[accounts.operator]
secrets = ["operator-secret"]
trust_rocketmq_signatures = true
may = ["route-read", "admin-read", "admin-write"]
"""
APPLICATION: Final = "application:old-secret"
WRONG: Final = "application:wrong-secret"


def credentials(access_key: str, secret_key: str) -> dict[str, str]:
    """Settings with which a broker of 5.x signs its requests to NameServers; it also creates that account itself."""
    provider = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    inner = json.dumps({"accessKey": access_key, "secretKey": secret_key})
    return {"authenticationMetadataProvider": provider, "innerClientAuthenticationCredentials": inner}


def environment(access_key: str, secret_key: str) -> dict[str, str]:
    """Environment variables with which namesrvctl signs."""
    return {"NAMESRV_ACCESS_KEY": access_key, "NAMESRV_SECRET_KEY": secret_key}


class World:
    """A NameServer that requires signatures, and a broker that signs."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place = place
        self._stack = stack
        access = place / "access.toml"
        access.write_text(ACCESS)
        access.chmod(0o600)
        self.daemon = stack.enter_context(Daemon(place / "namesrv", "--access", str(access))).listening()
        self.address = "{}:{}".format(*self.daemon.address)
        signing = credentials("broker", "broker-secret")
        self.broker = stack.enter_context(Broker(place / "broker", [self.address], settings=signing)).booted()
        self.daemon.wait_for("broker_registered", broker_name="broker-a")

    def admin(self, name: str, yaml: str) -> MqAdmin:
        """An mqadmin with this conf/tools.yml."""
        home = self.place / name
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text(yaml)
        return self._stack.enter_context(MqAdmin(home, self.address))


@pytest.fixture(scope="module")
def world(place: Path, stack: ExitStack) -> World:
    """The NameServer and the broker, started once for all tests."""
    return World(place, stack)


def test_broker_that_signs_is_registered_and_stays(world: World) -> None:
    """Several registrations and requests of 5.3.3 are accepted, and no request is refused."""

    def connection() -> dict[str, Any]:
        words = ("connections", "--role", "broker", "-o", "json")
        done = run("-s", world.address, *words, env=environment("operator", "operator-secret"))
        (found,) = done.json["servers"][0]["connections"]
        assert isinstance(found, dict)
        return found

    until(lambda: connection()["requests"] > 5)
    assert world.daemon.lines("access_refused", peer=connection()["peer"]) == []


def test_broker_with_a_wrong_secret_is_refused(world: World) -> None:
    """A broker of 5.3.3 that signs with a wrong secret is refused; tests/namesrv/access has the other reasons."""
    settings = credentials("broker", "wrong-secret")
    with Broker(world.place / "forger", [world.address], name="forger", settings=settings) as broker:
        broker.booted()
        world.daemon.wait_for("access_refused", request="REGISTER_BROKER", reason="mismatch")
    assert world.daemon.lines("broker_registered", broker_name="forger") == []


def test_java_clients_sign_and_are_served(world: World, clients: Driver) -> None:
    """A signing producer and consumer exchange messages; a client with a wrong secret gets no route."""
    clients.start_producer("signed", [world.address], key=APPLICATION)
    clients.start_consumer("reader", [world.address], "TopicOfSigned", key="application:new-secret", poll=1000)
    sent = clients.send("signed", "TopicOfSigned", 5, "m")
    assert len(sent) == 5
    clients.wait_until(lambda: clients.bodies("received", name="reader") == sent)

    clients.start_producer("forged", [world.address], key=WRONG, retries=0)
    assert clients.send("forged", "TopicOfSigned", 1, "x") == set()
    assert clients.events("failed", name="forged")


@pytest.mark.needs("java", "javac", "mvn", "go")
def test_go_clients_sign_and_are_served(world: World) -> None:
    """Go clients that sign send and receive messages."""
    place, servers = world.place, [world.address]
    with GoProducer(place / "go-p", servers, key=APPLICATION) as producer:
        assert producer.started().send("TopicOfGo", "m"), producer
    # The consumer refuses to start with a missing topic.
    with GoConsumer(place / "go-c", servers, ["TopicOfGo"], key=APPLICATION) as consumer:
        consumer.started().wait_until(lambda: consumer.bodies("received") == {"m"})
    with GoProducer(place / "go-x", servers, key=WRONG, group="forgers") as producer:
        assert not producer.started().send("TopicOfForgers", "m"), producer


def test_mqadmin_signs_with_its_tools_yml(world: World) -> None:
    """An account that accepts RocketMQ's signatures may administer; for other accounts the error has the reason."""
    operator = world.admin("operator", "accessKey: operator\nsecretKey: operator-secret\n")
    assert "broker-a" in operator.succeed("clusterList").stdout
    operator.succeed("updateKvConfig", "-s", "ns", "-k", "k", "-v", "v")
    kept = run("-s", world.address, "kv", "get", "ns", "k", env=environment("operator", "operator-secret"))
    assert (kept.code, kept.cells[1]) == (0, ["v"])

    application = world.admin("application", "accessKey: application\nsecretKey: new-secret\n")
    refused = application("updateKvConfig", "-s", "ns", "-k", "k", "-v", "w")
    assert "CODE: 16" in refused.stdout + refused.stderr
    stranger = world.admin("stranger", "")
    refused = stranger("clusterList")
    assert "CODE: 16" in refused.stdout + refused.stderr
    until(lambda: world.daemon.lines("access_refused", request="PUT_KV_CONFIG", reason="weak_signature"))
    kept = run("-s", world.address, "kv", "get", "ns", "k", env=environment("operator", "operator-secret"))
    assert kept.cells[1] == ["v"]
