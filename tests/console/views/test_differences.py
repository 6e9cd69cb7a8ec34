"""Where servers disagree, since when, and what is to be expected."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from namesrv_client.ctl.comparison import PRESENT
from namesrv_console.state import Cluster, ServerView, seen_brokers
from namesrv_console.views.differences import Disagreement, among, disagreements
from namesrv_console.views.topics import TopicTable, told_topics, topic_table
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

NOW = 1000.0


def live(name: str, *, age: float = 1.0, addr: str = "h:1", wiped: bool | None = False) -> LiveBroker:
    """One of cluster c1."""
    expires = 120.0 - age
    return LiveBroker("c1", name, 0, addr, age_seconds=age, expires_in_seconds=expires, write_wiped=wiped)


def route(*brokers: str) -> TopicRouteData:
    """Of a topic on these brokers."""
    return TopicRouteData(
        [BrokerData("c1", name, {0: "h:1"}) for name in brokers], [QueueData(name, 8, 8, 6) for name in brokers]
    )


def server(
    address: str, *brokers: LiveBroker, uptime: float = 500.0, ready: bool = True, **routes: TopicRouteData
) -> ServerView:
    """One that answers, with these brokers and topics."""
    return ServerView(
        address,
        is_reachable=True,
        answered_at=NOW,
        info=ServerInfo("boot", ready=ready, revision=1, uptime_seconds=uptime),
        brokers=seen_brokers({}, brokers, NOW),
        topics=frozenset(routes),
        routes=routes,
        routes_revision=1,
    )


def found(
    *servers: ServerView, known: Mapping[Any, float | None] | None = None, now: float = NOW
) -> list[Disagreement]:
    """What these servers disagree about."""
    cluster = Cluster(1, servers)
    told = told_topics(cluster)
    return disagreements(cluster, told, topic_table(told, (), TopicTable()), known, now)


def test_brokers_and_topics_are_compared_on_servers_that_answer() -> None:
    """A server that is away, or that does not tell routes, disagrees with nobody about them."""
    away = replace(server("s3"), is_reachable=False)
    refusing = replace(server("s4", live("a"), live("b", wiped=None)), refused={"routes": "not ready"})

    said = found(
        server("s1", live("a"), live("b", wiped=True), t=route("a", "b")), server("s2", live("a"), t=route("a")), away,
        refusing,
    )  # fmt: skip

    assert [(one.difference.kind, one.difference.name, one.difference.fact, one.difference.values) for one in said] == [
        ("broker", "c1/b/0", PRESENT, {"s1": True, "s2": False, "s4": True}),
        ("topic", "t", "queues on b", {"s1": "8 read, 8 write, RW-", "s2": None}),
    ]


def test_a_difference_is_as_old_as_it_was_seen_first() -> None:
    """What was there when the console began has no beginning."""
    servers = server("s1", live("a")), server("s2")
    key = ("broker", "c1/a/0", PRESENT)

    assert [one.since for one in found(*servers)] == [None]
    assert [one.since for one in found(*servers, known={})] == [NOW]
    assert [one.since for one in found(*servers, known={key: 900.0})] == [900.0]


@pytest.mark.parametrize(
    ("other", "since", "reason"),
    [
        (server("s2", uptime=5.0), None, "starting"),
        (server("s2", ready=False), None, "starting"),
        (server("s2"), NOW - 10, "registering"),
        (server("s2"), NOW - 40, None),
        (server("s2"), None, None),
    ],
)
def test_what_is_still_registering_is_expected(other: ServerView, since: float | None, reason: str | None) -> None:
    """A broker tells all servers within a heartbeat; after that it is no longer an excuse."""
    known = {("broker", "c1/a/0", PRESENT): since}

    assert [reason] == [one.reason for one in found(server("s1", live("a")), other, known=known)]


def test_a_broker_that_the_next_scan_evicts_is_expected_to_go() -> None:
    """One server has evicted it, the other will; its topics follow."""
    said = found(server("s1", live("a", age=119.0), t=route("a")), server("s2"))

    assert [(one.difference.kind, one.reason) for one in said] == [("broker", "leaving"), ("topic", "leaving")]


def test_some_servers_can_be_compared() -> None:
    """What these agree on is no difference."""
    said = found(server("s1", live("a")), server("s2"), server("s3"))

    assert [one.difference.values for one in among(said, {"s1", "s3"})] == [{"s1": True, "s3": False}]
    assert among(said, {"s2", "s3"}) == []


def test_what_excuses_one_server_excuses_no_other() -> None:
    """One has just started; the other two have no such reason to disagree."""
    said = found(server("s1", live("a")), server("s2"), server("s3", uptime=5.0))

    assert [one.reason for one in said] == ["starting"]
    assert [one.reason for one in among(said, {"s1", "s2"})] == [None]


def test_a_wiped_permission_is_not_still_registering() -> None:
    """Somebody wiped it on one server alone, and no heartbeat will mend that."""
    said = found(server("s1", live("a", wiped=True)), server("s2", live("a")), known={})

    assert [(one.difference.fact, one.reason) for one in said] == [("wiped", None)]
