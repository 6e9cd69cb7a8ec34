"""The broker agent and the client against a server with an access file, with and without a key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import TopicConfig
from namesrv_client import RouteUnavailableError
from namesrv_remoting.access import parse_access_file
from tests.support.agents import brokers, running
from tests.support.fake_clock import passing
from tests.support.in_process import InProcess, guarded_namesrv
from tests.support.route_clients import INFO, PULL, request_count, route_client

FILE = """
[accounts.broker]
secrets = ["broker-secret"]
may = [{ access = "broker-control", clusters = ["cluster-1"], brokers = ["broker-a"], topics = ["orders", "bills"] }]

[accounts.reader]
secrets = ["reader-secret"]
may = [{ access = "route-read", topics = ["orders"] }]
"""
BROKER: dict[str, Any] = {"access_key": "broker", "secret_key": "broker-secret"}
READER: dict[str, Any] = {"access_key": "reader", "secret_key": "reader-secret"}
ANONYMOUS = "request is not signed, and no account matches this address or certificate"
BOTH = pytest.mark.parametrize("protocol", ["native", "rocketmq", "auto"])


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[InProcess]:
    """A server with the access file."""
    async with guarded_namesrv(tmp_path, FILE) as server:
        yield server


@pytest.mark.parametrize(
    ("key", "remark"),
    [
        ({}, ANONYMOUS),
        ({**BROKER, "secret_key": "other"}, "access key 'broker' is unknown, or the request is not signed with"),
    ],
)
@BOTH
async def test_refused_agent_reports_the_remark(
    guarded: InProcess, protocol: str, key: dict[str, Any], remark: str
) -> None:
    """A refused agent retries with its heartbeats and has the server's remark as its last error.

    With protocol `auto` it asks for the server's information, which the server refuses, too.
    """
    async with running(guarded.clock, guarded.where, protocol=protocol, **key) as agent:

        def error() -> str:
            return agent.servers[guarded.where].last_error or ""

        await passing(guarded.clock, lambda: error().startswith("registration refused: "))
        assert remark in error()
    assert request_count(guarded, INFO) == (protocol == "auto")
    assert brokers(guarded) == {}


@BOTH
@pytest.mark.parametrize(
    ("topic", "key", "remark"),
    [
        ("orders", {}, ANONYMOUS),
        (
            "orders",
            {**READER, "secret_key": "other"},
            "access key 'reader' is unknown, or the request is not signed with",
        ),
        ("bills", READER, "account reader lacks route-read"),
    ],
)
async def test_refused_client_raises_the_remark(
    guarded: InProcess, protocol: str, topic: str, key: dict[str, Any], remark: str
) -> None:
    """A client without access to a topic gets the server's remark, not "unknown topic"."""
    async with route_client(guarded.clock, guarded.where, protocol=protocol, **key) as client:
        with pytest.raises(RouteUnavailableError, match=remark):
            await client.route(topic)


@pytest.mark.parametrize("watch", [False, True])
async def test_client_keeps_the_route_of_a_revoked_topic(guarded: InProcess, watch: bool) -> None:
    """A client that loses access to a topic keeps its cached route, follows other topics and polls no faster."""
    clock, where, guard = guarded.clock, guarded.where, guarded.guard
    async with (
        running(clock, where, **BROKER) as agent,
        route_client(clock, where, watch=watch, **BROKER, poll_seconds=10) as client,
    ):
        guard.follow(parse_access_file(FILE.replace("may = [{", 'may = ["route-read", {', 1)), enforces=True)
        assert await agent.registered() == 1
        for topic in ("orders", "bills"):
            await client.route(topic)
        allowed = 'may = [{ access = "route-read", topics = ["orders"] }, {'
        guard.follow(parse_access_file(FILE.replace("may = [{", allowed, 1)), enforces=True)

        def queue_nums(topic: str) -> int:
            known = client.cached(topic)
            return 0 if known is None else known.data.queue_datas[0].write_queue_nums

        for topic in ("orders", "bills"):
            await agent.update_topic(TopicConfig(topic, 16, 16))
        await passing(clock, lambda: queue_nums("orders") == 16)
        before = request_count(guarded, PULL)
        await clock.advance(30)
        assert request_count(guarded, PULL) - before < 90
        assert queue_nums("bills") == 4
