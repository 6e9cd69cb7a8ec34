"""`namesrvctl migrate check` between Apache's NameServer and ours finds no relevant difference."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.route import topics_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.ctl import run
from tests.support.daemon import Daemon


@pytest.fixture(scope="module")
def sides(place: Path, stack: ExitStack) -> tuple[str, str]:
    """Apache's server and ours, with the same real broker, two agents with many topics, and an order configuration."""
    apache = stack.enter_context(ApacheNameServer(place / "apache", settings={"orderMessageEnable": "true"})).booted()
    ours = stack.enter_context(Daemon(place / "ours", "--order-message-enable")).listening()
    both = (apache.address, ours.where)
    stack.enter_context(Broker(place / "broker", list(both), name="real")).booted()
    for number, name in enumerate(("broker-a", "broker-b")):
        stack.enter_context(agent(number, name, both)).registered()
    admin = stack.enter_context(MqAdmin(place / "mqadmin", *both))
    admin.succeed("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "topic-1", "-v", "broker-a:4;broker-b:4")
    until_routed(both, "real")
    until_equal(topics_of(apache.address), lambda: topics_of(ours.where))
    return both


def agent(number: int, name: str, servers: tuple[str, ...]) -> SyncBrokerAgent:
    """The agent of a broker with 300 topics, registered with these servers."""
    settings = AgentSettings(
        cluster_name="cluster",
        broker_name=name,
        broker_addr=f"10.0.0.{number + 1}:10911",
        name_servers=";".join(servers),
    )
    return SyncBrokerAgent(settings, [TopicConfig(f"topic-{each}", 4, 4, each % 3 + 4) for each in range(300)])


def test_only_harmless_differences_are_found(sides: tuple[str, str]) -> None:
    """The only differences are the order of brokers, and bare keys in responses to old clients."""
    apache, ours = sides
    done = run("migrate", "check", "--from", apache, "--to", ours, "-o", "json")
    found = done.json

    assert (done.code, done.err, found["agree"]) == (0, "", True)
    assert {(it["kind"], it["fact"]) for it in found["differences"]} == {
        ("topic", "first broker"),
        ("topic", "integers as bare keys"),
    }
    keys = next(it for it in found["differences"] if it["fact"] == "integers as bare keys")
    assert list(keys["values"].values()) == [True, False]
    assert {"real", "topic-1"} <= set(keys["names"])
