"""The list of brokers: problems first, filter and order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from namesrv_client.health import Problem
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView, TopicReport
from namesrv_console.views.brokers import BrokerQuery, ListedBroker, broker_page, broker_rows, topics_of
from namesrv_console.views.heat import heat_map
from namesrv_console.views.paging import PAGE_ROWS, Paged
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion

A, A_SLAVE, B, C = (
    BrokerKey("c1", "broker-a", 0),
    BrokerKey("c1", "broker-a", 1),
    BrokerKey("c1", "broker-b", 0),
    BrokerKey("c0", "broker-c", 0),
)
ADDRESSES = {A: "10.0.0.3:10911", A_SLAVE: "10.0.0.4:10911", B: "10.0.0.2:10911", C: "10.0.0.1:10911"}
VERSIONS = {A: 7, A_SLAVE: 5, B: 9, C: 8}
VIEW = ServerView(
    "s1",
    answered_at=0.0,
    info=ServerInfo("b1", ready=True),
    brokers={
        key: BrokerSeen(LiveBroker(*key, address, data_version=DataVersion(counter=VERSIONS[key])), 0.0, 120.0)
        for key, address in ADDRESSES.items()
    },
)
PROBLEMS = (
    Problem("missing_broker", "c1/broker-b/0", group=B[:2]),
    Problem("silent_master", "c1/broker-a", group=A[:2]),
    Problem("write_removed", "c1/broker-a", group=A[:2]),
)


def page_of(
    views: tuple[ServerView, ...],
    problems: Sequence[Problem] = (),
    query: BrokerQuery = BrokerQuery(),  # noqa: B008 - frozen
) -> Paged[ListedBroker]:
    """The page of a query."""
    cluster = Cluster(1, views)
    return broker_page(cluster, heat_map(cluster, (), (), None), problems, query)


def listed(query: BrokerQuery = BrokerQuery(), view: ServerView = VIEW) -> list[tuple[BrokerKey, str]]:  # noqa: B008 - frozen
    """Key and level of the brokers of the list."""
    found = page_of((view,), PROBLEMS, query)
    return [(one.row.key, one.level) for one in found.rows]


def test_brokers_with_problems_come_first() -> None:
    """The worst problem of a broker or of its group counts."""
    assert listed() == [(A, "critical"), (A_SLAVE, "critical"), (B, "warning"), (C, "good")]


def test_broker_without_a_cluster_has_the_level_of_its_problem() -> None:
    """A broker may register with an empty name of its cluster."""
    key = BrokerKey("", "broker-a", 0)
    view = replace(VIEW, brokers={key: BrokerSeen(LiveBroker(*key, ADDRESSES[A]), 0.0, 120.0)})

    [found] = page_of((view,), [Problem("silent_master", "broker-a", group=key[:2])]).rows
    assert (found.row.key, found.level) == (key, "critical")


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ({"sort": "cluster"}, [C, A, A_SLAVE, B]),
        ({"sort": "broker"}, [A, A_SLAVE, B, C]),
        ({"sort": "address"}, [C, B, A, A_SLAVE]),
        ({"sort": "versions"}, [A_SLAVE, A, C, B]),
        ({"cluster": "c0"}, [C]),
        ({"show": "problems"}, [A, A_SLAVE, B]),
        ({"text": " Broker-B "}, [B]),
        ({"text": "10.0.0.4"}, [A_SLAVE]),
        ({"text": "none"}, []),
    ],
)
def test_brokers_are_filtered_and_sorted(query: dict[str, Any], keys: list[BrokerKey]) -> None:
    """By cluster, name, address, version and health."""
    assert [key for key, _ in listed(BrokerQuery(**query))] == keys


def test_brokers_are_paged() -> None:
    """A page has a hundred brokers; a page beyond the last one is the last one."""
    keys = [BrokerKey("c1", f"broker-{number:03}", 0) for number in range(PAGE_ROWS + 2)]
    view = replace(VIEW, brokers={key: BrokerSeen(LiveBroker(*key, ADDRESSES[A]), 0.0, 120.0) for key in keys})

    found = page_of((view,), query=BrokerQuery(page=7))
    assert ([one.row.key for one in found.rows], found.count, found.page, found.pages) == (keys[-2:], 102, 2, 2)


@pytest.mark.parametrize("others", [(), (ServerView("s2", answered_at=0.0, info=ServerInfo("b2", ready=True)),)])
def test_broker_that_only_an_unreachable_server_had_is_not_good(others: tuple[ServerView, ...]) -> None:
    """The last report of a lost server says nothing now: its broker may be dead, whatever another server reports."""
    [found] = page_of((VIEW.lost("timeout", 1.0), *others), query=BrokerQuery(cluster="c0")).rows
    assert (found.row.key, found.level) == (C, "unknown")


def test_broker_is_unknown_on_a_server_that_refuses_its_brokers() -> None:
    """A server denies its brokers to the account of the console."""
    refusing = replace(VIEW, address="s2", brokers={}, refused={"brokers": "denied"})

    cluster = Cluster(1, (VIEW, refusing))
    [row] = broker_rows(cluster, heat_map(cluster, (), (), None), "c0", "broker-c")
    assert [cell.heat for cell in row.cells] == ["in_time", "unknown"]


def test_denied_topics_are_unknown() -> None:
    """The last routes of a server that now denies them are not those of the broker; nor are there none."""
    route = TopicRouteData([], [QueueData("broker-a", 8, 8, 6)])
    view = replace(VIEW, topic_report=TopicReport(frozenset("T"), {"T": route}, 1))

    assert topics_of(Cluster(1, (view,)), "broker-a") == (["T"], True)
    assert topics_of(Cluster(1, (replace(view, refused={"routes": "access denied"}),)), "broker-a") == ([], False)
    assert topics_of(Cluster(1, (replace(view, topic_report=TopicReport(frozenset("T"))),)), "broker-a") == ([], False)
