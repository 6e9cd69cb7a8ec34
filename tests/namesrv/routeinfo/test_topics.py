"""Operators' changes of one topic (216, 217)."""

import pytest

from namesrv.routeinfo.tables import Rerouted, RouteTables
from namesrv.routeinfo.topics import plan_delete_topic, plan_register_topic
from namesrv_remoting.bodies.route import QueueData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.route_builders import apply, body, queue_data, registration, rows, tables_of
from tests.support.table_invariants import violations

ALL = {"t1": {"b1": 6, "b2": 6}, "t2": {"b1": 6, "b2": 6}}
MAPPING = TopicQueueMappingInfo(topic="t1", bname="b1")


def two_clusters() -> RouteTables:
    """t1 and t2 on b1 in c1 and on b2 in c2."""
    return tables_of(
        registration("b1", 0, "m:1", body=body("t1", "t2", mappings={"t1": MAPPING})),
        registration("b2", 0, "o:1", cluster_name="c2"),
    )


@pytest.mark.parametrize(
    ("topic", "cluster", "left"),
    [
        ("t1", None, {"t2": {"b1": 6, "b2": 6}}),
        ("t1", "c1", {"t1": {"b2": 6}, "t2": {"b1": 6, "b2": 6}}),
        ("t1", "nowhere", ALL),
        ("nothing", None, ALL),
        ("nothing", "c1", ALL),
    ],
)
def test_delete_topic(topic: str, cluster: str | None, left: dict[str, dict[str, int]]) -> None:
    """Everywhere, or only from one cluster's brokers; what is unknown changes nothing."""
    tables = two_clusters()

    affected = apply(tables, plan_delete_topic(tables, topic, cluster)).before.keys()

    assert left == rows(tables)
    assert (set() if left == ALL else {"t1"}) == affected
    assert [] == violations(tables)


def test_topic_without_brokers_goes() -> None:
    """Taken out of one cluster after the other, it is gone, and its static mappings with it."""
    tables = two_clusters()
    apply(tables, plan_delete_topic(tables, "t1", "c1"))
    assert {} == tables.topic_queue_mapping_info_table

    apply(tables, plan_delete_topic(tables, "t1", "c2"))

    assert ["t2"] == list(tables.topic_queue_table)


@pytest.mark.parametrize(
    ("topic", "said", "stored"),
    [
        ("new", [queue_data("b1", 4, 6)], {"b1": 6}),
        ("new", [queue_data("b2"), queue_data("b1")], {"b1": 6, "b2": 6}),
        # a new topic with an unknown broker anywhere: nothing
        ("new", [queue_data("b1"), queue_data("nobody")], None),
        ("new", [queue_data("nobody")], None),
        ("new", [], None),
        # a known one: what stands before the unknown broker counts
        ("t1", [queue_data("b1", perm=4), queue_data("nobody"), queue_data("b2", perm=4)], {"b1": 4, "b2": 6}),
        ("t1", [queue_data("nobody"), queue_data("b1", perm=4)], {"b1": 6, "b2": 6}),
        # the last word about a broker counts
        ("new", [queue_data("b1", perm=2), queue_data("b1", perm=4)], {"b1": 4}),
    ],
)
def test_register_topic(topic: str, said: list[QueueData], stored: dict[str, int] | None) -> None:
    """Broker by broker; the first unknown one ends it."""
    tables = two_clusters()

    apply(tables, plan_register_topic(tables, topic, said))

    assert stored == rows(tables).get(topic)
    assert [] == violations(tables)


def test_registering_what_is_there_affects_nothing() -> None:
    """No answer has to be encoded again."""
    tables = two_clusters()

    assert Rerouted() == apply(tables, plan_register_topic(tables, "t1", [queue_data("b1"), queue_data("b2")]))


def test_wiped_permission_is_not_given_back_by_the_way() -> None:
    """Only adding it back is (327)."""
    tables = two_clusters()
    tables.wiped.add("b1")

    apply(tables, plan_register_topic(tables, "new", [queue_data("b1"), queue_data("b2")]))

    assert {"b1": 4, "b2": 6} == rows(tables)["new"]
