"""Disagreements of servers, their start, and whether they are expected."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from namesrv_client.ctl.comparison import PRESENT, Difference, Fact, Queues
from namesrv_console.state import Cluster, ServerView, TopicReport, seen_brokers
from namesrv_console.views.differences import Disagreement, Group, among, disagreements
from namesrv_console.views.problems import missing_among
from namesrv_console.views.topics import TopicTable, topic_reports, topic_table
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData

NOW = 1000.0
QUEUES = Fact("queues on", "a")


def live(
    name: str, *, age: float = 1.0, expiry: float = 120.0, addr: str = "h:1", write_removed: bool | None = False
) -> LiveBroker:
    """A live broker of cluster c1."""
    expires = expiry - age
    return LiveBroker("c1", name, 0, addr, age_seconds=age, expires_in_seconds=expires, write_removed=write_removed)


def route(*brokers: str) -> TopicRouteData:
    """The route of a topic on these brokers."""
    return TopicRouteData(
        [BrokerData("c1", name, {0: "h:1"}) for name in brokers], [QueueData(name, 8, 8, 6) for name in brokers]
    )


def server(
    address: str, *brokers: LiveBroker, uptime: float = 500.0, ready: bool = True, **routes: TopicRouteData
) -> ServerView:
    """A reachable server with these brokers and topics."""
    return ServerView(
        address,
        answered_at=NOW,
        info=ServerInfo("boot", ready=ready, revision=1, uptime_seconds=uptime),
        brokers=seen_brokers({}, brokers, NOW),
        topic_report=TopicReport(frozenset(routes), routes, 1),
    )


def found(
    *servers: ServerView, known: Mapping[Any, float | None] | None = None, now: float = NOW
) -> list[Disagreement]:
    """The disagreements of these servers."""
    cluster = Cluster(1, servers)
    reports = topic_reports(cluster)
    return disagreements(cluster, reports, topic_table(reports, (), TopicTable()), known, now)


def test_brokers_and_topics_are_compared_on_servers_that_answer() -> None:
    """A server that is unreachable or reports no routes is left out of the comparison."""
    away = server("s3").lost("timeout", NOW)
    refusing = replace(server("s4", live("a"), live("b", write_removed=None)), refused={"routes": "not ready"})

    differing = found(
        server("s1", live("a"), live("b", write_removed=True), t=route("a", "b")),
        server("s2", live("a"), t=route("a")), away, refusing,
    )  # fmt: skip

    assert [
        (one.difference.kind, one.difference.name, one.difference.fact, one.difference.values) for one in differing
    ] == [
        ("broker", "c1/b/0", PRESENT, {"s1": True, "s2": False, "s4": True}),
        ("topic", "t", Fact("queues on", "b"), {"s1": Queues(8, 8, "RW-"), "s2": None}),
    ]


def test_difference_keeps_the_time_of_its_first_sighting() -> None:
    """A difference that existed when the console started has no start."""
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
    """A broker registers with all servers within one heartbeat interval; afterwards the difference is unexpected."""
    known = {("broker", "c1/a/0", PRESENT): since}

    assert [one.reason for one in found(server("s1", live("a")), other, known=known)] == [reason]


def test_a_broker_that_the_next_scan_evicts_is_expected_to_go() -> None:
    """A broker that one server has evicted is about to be evicted by the other; its topics are expected to follow."""
    differing = found(server("s1", live("a", age=119.0), t=route("a")), server("s2"))

    assert [(one.difference.kind, one.reason) for one in differing] == [("broker", "leaving"), ("topic", "leaving")]


def test_a_broker_with_a_short_expiry_is_not_expected_to_go_between_two_heartbeats() -> None:
    """With an expiry of 10 s a broker in time is always less than a scan's interval from its eviction."""
    differing = found(server("s1", live("a", age=3.0, expiry=10.0)), server("s2"))

    assert [one.reason for one in differing] == [None]


def test_some_servers_can_be_compared() -> None:
    """A disagreement remains only if the chosen servers have different values."""
    differing = found(server("s1", live("a")), server("s2"), server("s3"))

    assert [one.difference.values for one in among(differing, {"s1", "s3"})] == [{"s1": True, "s3": False}]
    assert among(differing, {"s2", "s3"}) == []


def test_reason_applies_to_its_own_server_only() -> None:
    """One server has just started; a disagreement of the other two stays unexpected."""
    servers = server("s1", live("a")), server("s2"), server("s3", uptime=5.0)
    differing = found(*servers)

    assert [(one.reason, one.blamed) for one in differing] == [(None, frozenset({"s3"}))]
    assert [one.reason for one in among(differing, {"s1", "s2"})] == [None]
    missing, others = missing_among(differing, Cluster(1, servers))
    assert ([one.servers for one in missing], others) == ([("s2",)], 0)


def test_removed_write_permission_is_unexpected() -> None:
    """A write permission that was removed on one server only does not come back with a heartbeat."""
    differing = found(server("s1", live("a", write_removed=True)), server("s2", live("a")), known={})

    assert [(one.difference.fact, one.reason) for one in differing] == [(Fact("write removed"), None)]


@pytest.mark.parametrize(
    ("fact", "values", "minority"),
    [
        (QUEUES, {"s1": "8", "s2": "4", "s3": "8"}, {"s2"}),
        (QUEUES, {"s1": "8", "s2": "4"}, set()),
        (QUEUES, {"s1": "8", "s2": None}, {"s2"}),
        (PRESENT, {"s1": True, "s2": False}, {"s2"}),
        (PRESENT, {"s1": True, "s2": False, "s3": False}, {"s1"}),
        (Fact("write removed"), {"s1": True, "s2": False}, set()),
        (Fact("address"), {"s1": "a", "s2": "b", "s3": "c", "s4": "c"}, {"s1", "s2"}),
    ],
)
def test_minority_has_the_rarer_value(fact: Fact, values: Mapping[str, Any], minority: set[str]) -> None:
    """Of two servers only one without a value is in the minority."""
    assert Group(["t"], Difference("topic", "t", fact, values), None, None).minority == minority
