"""The topology: states of links, levels of groups, and clusters in place of many groups."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from namesrv_client.health import Problem
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ConnectionReport, ServerView
from namesrv_console.views.heat import heat_map
from namesrv_console.views.topology import MOST_GROUPS, Topology, topology
from namesrv_remoting.bodies.extensions import Connection, LiveBroker, ServerInfo

MASTER, SLAVE = BrokerKey("c1", "broker-a", 0), BrokerKey("c1", "broker-a", 1)


def view(address: str, *keys: BrokerKey) -> ServerView:
    """A ready server with these brokers."""
    brokers = {key: BrokerSeen(LiveBroker(*key, "10.0.0.1:10911"), 0.0, 120.0) for key in keys}
    return ServerView(address, answered_at=0.0, info=ServerInfo("b1", ready=True), brokers=brokers)


def shown(*views: ServerView, gone: Iterable[BrokerKey] = (), problems: Iterable[Problem] = ()) -> Topology:
    """The picture of these servers."""
    cluster = Cluster(1, views)
    return topology(cluster, heat_map(cluster, gone, [], 0.0), problems)


@pytest.mark.parametrize(
    ("other", "state"),
    [
        (view("s2", MASTER, SLAVE), "good"),
        (view("s2", MASTER), "broken"),
        (view("s2"), "broken"),
        (view("s2", MASTER, SLAVE).lost("timeout", 1.0), "unknown"),
        (ServerView("s2"), "unknown"),
    ],
)
def test_link_is_broken_where_a_server_lacks_a_broker(other: ServerView, state: str) -> None:
    """A group has a link to each server; the worst of its instances counts, and a lost server says nothing."""
    found = shown(view("s1", MASTER, SLAVE), other)

    assert [edge.state for edge in found.edges] == ["good", state]
    assert found.count("broken") == (state == "broken")


@pytest.mark.parametrize("other", [(), (view("s2"),)])
def test_group_that_no_server_reports_is_not_good(other: tuple[ServerView, ...]) -> None:
    """The last report of a lost server says nothing about the brokers now, nor does a server that lacks them."""
    (group,) = shown(view("s1", MASTER, SLAVE).lost("timeout", 1.0), *other).brokers

    assert group.level == "unknown"


def test_group_shows_who_is_there_and_its_worst_problem() -> None:
    """A master that left is counted no more, and its links are broken."""
    problems = [
        Problem("write_removed", "c1/broker-a", group=("c1", "broker-a")),
        Problem("without_master", "c1/broker-a", group=("c1", "broker-a")),
        Problem("server_unreachable", "s2"),
    ]

    found = shown(view("s1", SLAVE), gone=[MASTER], problems=problems)

    (group,) = found.brokers
    assert (group.name, group.masters, group.slaves, group.level) == ("broker-a", 0, 1, "critical")
    assert found.count("broken") == 1
    (without_slave,) = shown(view("s1", MASTER), gone=[SLAVE], problems=problems[:1]).brokers
    assert without_slave.level == "warning"
    (healthy,) = shown(view("s1", MASTER)).brokers
    assert (healthy.masters, healthy.slaves, healthy.level) == (1, 0, "good")


def test_many_groups_are_shown_as_clusters() -> None:
    """Each of up to 50 groups has a node; beyond, clusters have, and a broken group breaks its cluster's link."""
    keys = [BrokerKey(f"c{number % 2}", f"broker-{number:02}", 0) for number in range(MOST_GROUPS)]
    assert len(shown(view("s1", *keys)).brokers) == MOST_GROUPS

    more = [*keys, BrokerKey("c0", "one-more", 0)]
    found = shown(view("s1", *more), view("s2", *more[:-1]))

    assert [(one.cluster, one.name, one.groups, one.masters) for one in found.brokers] == [
        ("c0", None, 26, 26),
        ("c1", None, 25, 25),
    ]
    assert [edge.state for edge in found.edges] == ["good", "broken", "good", "good"]


def test_nodes_are_spread_over_the_height_and_clients_counted() -> None:
    """Two servers beside four groups are at a quarter and three quarters; connections of other roles are no clients."""
    keys = [BrokerKey("c1", f"broker-{number}", 0) for number in range(4)]
    connections = tuple(Connection(at, "p", role=role) for at, role in enumerate(["client", "client", "broker", None]))
    one = replace(view("s1", *keys), connection_report=ConnectionReport(0.0, connections))

    found = shown(one, view("s2", *keys))

    assert found.height == 160
    assert [(node.y, node.clients) for node in found.servers] == [(40.0, 2), (120.0, None)]
    assert [node.y for node in found.brokers] == [20.0, 60.0, 100.0, 140.0]


def test_picture_without_brokers_has_the_servers_only() -> None:
    """Servers without any broker have no links."""
    found = shown(view("s1"), ServerView("s2"))

    assert ([node.y for node in found.servers], found.brokers, found.edges) == ([20.0, 60.0], [], [])
