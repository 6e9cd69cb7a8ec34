"""The list of topics, and one topic's matrix."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from namesrv_client.ctl.comparison import PRESENT, Difference, Fact, Queues
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView, TopicReport
from namesrv_console.views.differences import Disagreement
from namesrv_console.views.matrix import matrix
from namesrv_console.views.paging import PAGE_ROWS
from namesrv_console.views.topics import (
    TopicQuery,
    TopicRow,
    TopicTable,
    topic_page,
    topic_reports,
    topic_table,
)
from namesrv_remoting.bodies.extensions import LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData


def route(**queues: int) -> TopicRouteData:
    """A route with as many queues on each of these brokers, whose permission is 6."""
    brokers = [BrokerData("c1", name, {0: f"{name}:10911"}) for name in queues]
    return TopicRouteData(brokers, [QueueData(name, count, count, 6) for name, count in queues.items()])


def cluster(**servers: Mapping[str, TopicRouteData] | None) -> Cluster:
    """Servers that know these routes; None for one that does not answer."""
    views = [
        ServerView(
            name,
            answered_at=None if routes is None else 0.0,
            info=ServerInfo("boot", ready=True, revision=1),
            topic_report=TopicReport(frozenset(routes or ()), routes or {}, 1),
        )
        for name, routes in servers.items()
    ]
    return Cluster(1, tuple(views))


def test_topic_without_a_requested_route_is_listed() -> None:
    """Apache's server gets a request per topic; an unrequested route makes no disagreement."""
    ours = cluster(s1={"t": route(a=8)}).servers[0]
    apache = ServerView("s2", answered_at=0.0, topic_report=TopicReport(frozenset("tu")))
    seen = Cluster(1, (ours, apache))

    found = topic_table(topic_reports(seen), (), TopicTable())

    assert [(row.name, row.brokers, row.differs) for row in found.rows] == [("t", 1, False), ("u", None, True)]
    assert [row.cells["s2"].state for row in matrix(seen, topic_reports(seen), "t", [])] == ["unknown"]


def table(**servers: Mapping[str, TopicRouteData] | None) -> TopicTable:
    """The table of these servers' topics."""
    return topic_table(topic_reports(cluster(**servers)), {"c1", "a"}, TopicTable())


def test_row_sums_queues_and_names_lacking_servers() -> None:
    """Queues are summed; a server that does not answer does not count as lacking the topic."""
    found = table(s1={"t": route(a=8, b=4)}, s2={}, s3=None)

    (row,) = found.rows
    assert row == TopicRow("t", "ordinary", 2, 12, 12, "RW-", is_ordered=False, missing_on=("s2",))
    assert found.differing == 1


def test_brokers_without_a_master_on_any_server_are_counted() -> None:
    """A master that one server has counts; the list can be reduced to such topics, the worst first."""
    queues = [QueueData(name, 8, 8, 6) for name in ("a", "b")]
    slaves = TopicRouteData([BrokerData("c1", name, {1: f"{name}:1"}) for name in ("a", "b")], queues)
    half = TopicRouteData([BrokerData("c1", "a", {0: "a:0"}), BrokerData("c1", "b", {1: "b:1"})], queues)

    found = table(s1={"t": slaves, "u": half, "v": slaves}, s2={"t": half, "u": route(a=8, b=8), "v": slaves})

    assert [(row.name, row.without_master) for row in found.rows] == [("t", 1), ("u", 0), ("v", 2)]
    worst = topic_page(found, TopicQuery(show="no_master", sort="no_master", is_descending=True))
    assert [row.name for row in worst.rows] == ["v", "t"]


@pytest.mark.parametrize(
    ("other", "differs"), [(route(a=8, b=4), False), (route(b=4, a=8), False), (route(a=8, b=5), True)]
)
def test_the_order_of_brokers_is_no_difference(other: TopicRouteData, differs: bool) -> None:
    """Servers list brokers in the order of their registrations."""
    assert table(s1={"t": route(a=8, b=4)}, s2={"t": other}).rows[0].differs == differs


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("orders", "ordinary"),
        ("%RETRY%orders", "retry"),
        ("%DLQ%orders", "dead_letter"),
        ("TBW102", "system"),
        ("rmq_sys_anything", "system"),
        ("a", "system"),
        ("c1_REPLY_TOPIC", "system"),
    ],
)
def test_kinds_follow_from_names(name: str, kind: str) -> None:
    """A topic with the name of a broker or cluster is a system topic; prefixes make retry and dead-letter topics."""
    assert table(s1={name: route(a=1)}).rows[0].kind == kind


def test_topics_with_the_same_routes_have_rows_of_their_own() -> None:
    """Rows of topics that share their routes have each topic's own name and kind, also in their differences."""
    here, there = route(a=8), route(a=4)

    rows = table(s1={"t": here, "%RETRY%g": here}, s2={"t": there, "%RETRY%g": there}).rows

    assert [(row.name, row.kind) for row in rows] == [("%RETRY%g", "retry"), ("t", "ordinary")]
    assert [[one.name for one in row.differences] for row in rows] == [["%RETRY%g"], ["t"]]


def test_rows_that_have_not_changed_are_kept() -> None:
    """A change of one topic among ten thousand makes one new row."""
    first = table(s1={"t": route(a=8), "u": route(a=8)})
    changed = cluster(s1={"t": route(a=8), "u": route(a=9)})

    second = topic_table(topic_reports(changed), {"c1", "a"}, first)

    assert first.rows[0] is second.rows[0]
    assert second.rows[1].read_queues == 9


MANY = table(
    s1={f"t{number:03}": route(a=number % 7 + 1) for number in range(250)} | {"TBW102": route(a=1)},
    s2={f"t{number:03}": route(a=number % 7 + 1) for number in range(250) if number != 42} | {"TBW102": route(a=1)},
)


@pytest.mark.parametrize(
    ("query", "first", "count", "hidden"),
    [
        (TopicQuery(), ["t000", "t001"], 250, 1),
        (TopicQuery(shows_system=True), ["TBW102", "t000"], 251, 0),
        (TopicQuery(is_descending=True), ["t249", "t248"], 250, 1),
        (TopicQuery(page=3), ["t200", "t201"], 250, 1),
        (TopicQuery(page=99), ["t200", "t201"], 250, 1),
        (TopicQuery(text="T04"), ["t040", "t041"], 10, 0),
        (TopicQuery(show="differing"), ["t042"], 1, 0),
        (TopicQuery(sort="read", is_descending=True), ["t006", "t013"], 250, 1),
        (TopicQuery(starred=frozenset({"t200", "t100"})), ["t100", "t200"], 250, 1),
        (TopicQuery(show="starred", starred=frozenset({"t200"})), ["t200"], 1, 0),
    ],
)
def test_query_filters_sorts_and_pages(query: TopicQuery, first: list[str], count: int, hidden: int) -> None:
    """Stars come first, equal rows in the order of their names, and a page beyond the last is the last."""
    page = topic_page(MANY, query)

    assert ([row.name for row in page.rows[:2]], page.count, page.hidden) == (first, count, hidden)
    assert len(page.rows) <= PAGE_ROWS


def test_the_matrix_has_a_cell_for_each_server() -> None:
    """A value that differs from most servers' is odd; a server without a response is unknown."""
    seen = cluster(s1={"t": route(a=8, b=4)}, s2={"t": route(a=8)}, s3={}, s4={"t": route(a=7, b=4)}, s5=None)

    rows = matrix(seen, topic_reports(seen), "t", [])

    assert {row.broker_name: [(cell.state, cell.is_odd) for cell in row.cells.values()] for row in rows} == {
        "a": [("present", False), ("present", False), ("absent", True), ("present", True), ("unknown", False)],
        "b": [("present", False), ("missing", True), ("absent", True), ("present", False), ("unknown", False)],
    }
    assert rows[0].cells["s1"].text == "8/8 RW-"


def test_expected_lack_is_awaited_and_makes_no_other_cell_odd() -> None:
    """A broker registers with one server after another: the queues of the first server are the usual ones."""
    seen = cluster(s1={"t": route(a=8, b=4)}, s2={"t": route(a=8)}, s3={"t": route(a=8)}, s4={})
    lack = Difference("topic", "t", Fact("queues on", "b"), {"s1": Queues(4, 4, "RW-"), "s2": None, "s3": None})
    absence = Difference("topic", "t", PRESENT, {"s1": True, "s2": True, "s3": True, "s4": False})
    disagreements = [Disagreement(lack, 0.0, "registering"), Disagreement(absence, 0.0, blamed=frozenset({"s4"}))]

    rows = matrix(seen, topic_reports(seen), "t", disagreements)

    assert {row.broker_name: [cell.state for cell in row.cells.values()] for row in rows} == {
        "a": ["present", "present", "present", "awaited"],
        "b": ["present", "awaited", "awaited", "awaited"],
    }
    assert not any(row.differs for row in rows)


def test_groups_without_a_master_come_first_in_the_matrix() -> None:
    """A bar for each instance, by broker id; a group without a master is first, then one that differs."""
    seen = cluster(s1={"t": route(a=8, b=8, c=8)}, s2={"t": route(a=8, b=7, c=8)}, s3={"t": route(a=8, b=8, c=8)})
    keys = [BrokerKey("c1", "a", 0), BrokerKey("c1", "c", 2), BrokerKey("c1", "c", 1)]
    brokers = {key: BrokerSeen(LiveBroker(*key, "10.0.0.1:10911"), 0.0, 120.0) for key in keys}
    seen = Cluster(2, (replace(seen.servers[0], brokers=brokers), *seen.servers[1:]))

    rows = matrix(seen, topic_reports(seen), "t", [])

    assert [(row.broker_name, row.lacks_master, row.differs) for row in rows] == [
        ("c", True, False),
        ("b", False, True),
        ("a", False, False),
    ]
    assert [list(row.cells["s1"].instances) for row in rows] == [[1, 2], [], [0]]
