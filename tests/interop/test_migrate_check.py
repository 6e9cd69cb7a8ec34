"""`namesrvctl migrate check` between Apache's NameServer and ours finds exactly the differences."""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, SyncBrokerAgent, TopicConfig
from tests.interop.peers.apache import ApacheNameServer, MqAdmin
from tests.interop.peers.broker import Broker
from tests.interop.peers.route import topics_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.ctl import COMMAND
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


def agent(
    number: int, name: str, servers: tuple[str, ...], cluster: str = "cluster", topics: int = 300
) -> SyncBrokerAgent:
    """The agent of a broker with topics, registered with these servers."""
    settings = AgentSettings(
        cluster_name=cluster, broker_name=name, broker_addr=f"10.0.0.{number + 1}:10911", name_servers=";".join(servers)
    )
    return SyncBrokerAgent(settings, [TopicConfig(f"topic-{each}", 4, 4, each % 3 + 4) for each in range(topics)])


def checked(sides: tuple[str, str], *more: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the last document of the check."""
    apache, ours = sides
    command = [*COMMAND, "migrate", "check", "--from", apache, "--to", ours, "-o", "json", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout if "--within" not in more else done.stdout.splitlines()[-1])


def test_only_harmless_differences_are_found(sides: tuple[str, str]) -> None:
    """The only differences are the order of brokers, and bare keys in responses to old clients."""
    code, found = checked(sides)

    assert (code, found["agree"]) == (0, True)
    assert {("topic", "first broker"), ("topic", "integers as bare keys")} == {
        (it["kind"], it["fact"]) for it in found["differences"]
    }
    keys = next(it for it in found["differences"] if it["fact"] == "integers as bare keys")
    assert list(keys["values"].values()) == [True, False]
    assert {"real", "topic-1"} <= set(keys["names"])


def test_relevant_differences_are_found_until_they_are_fixed(sides: tuple[str, str], tmp_path: Path) -> None:
    """A broker on one server only and a missing order configuration are found, until both are fixed."""
    apache, _ = sides
    with ExitStack() as only_there, MqAdmin(tmp_path, apache) as admin:
        only_there.enter_context(agent(7, "broker-c", (apache,), topics=2)).registered()
        admin.succeed("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "topic-2", "-v", "broker-a:1")
        code, found = checked(sides)

        assert (code, found["agree"]) == (1, False)
        assert {
            ("broker", "cluster/broker-c/0", "present"),
            ("cluster", "cluster", "groups"),
            ("order config", "topic-2", "present"),
            ("topic", "topic-2", "order"),
            ("topic", "topic-0,topic-1", "queues on broker-c"),
        } <= {(it["kind"], ",".join(it["names"]), it["fact"]) for it in found["differences"] if it["matters"]}
        admin.succeed("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "topic-2")
    code, found = checked(sides, "--within", "2m")
    assert (code, found["agree"]) == (0, True)
