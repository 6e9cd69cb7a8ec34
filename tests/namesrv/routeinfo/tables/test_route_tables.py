"""The tables apply a change in one step, keep their indexes, and drop all data of removed brokers."""

from copy import deepcopy
from dataclasses import replace

import msgspec
import pytest

from namesrv.routeinfo.registration import plan_registration
from namesrv.routeinfo.routes import system_topics
from namesrv.routeinfo.tables.records import RouteOptions
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from namesrv.routeinfo.tables.rows import RowChanges, TopicRow
from namesrv.routeinfo.tables.topic_table import SPARE_NAMES
from namesrv.routeinfo.topics import plan_delete_topic, plan_register_topic
from namesrv_remoting.bodies.advertised import AdvertisedAddresses
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from tests.support.route_builders import apply, body, key, queue_data, register, registration, remove, tables_of
from tests.support.steps import finished
from tests.support.table_invariants import violations

MASTER = registration("b1", 0, "m:1")
SLAVE = registration("b1", 1, "s:1")
OTHER = registration("b2", 0, "o:1", "t2", "t3")
MAPPING = TopicQueueMappingInfo(topic="t1", bname="b1", epoch=1)


def test_topic_has_one_string_for_all_brokers() -> None:
    """The name of a topic on several brokers is one string in memory."""
    # decoding makes equal strings that are different objects
    spellings = [b"t1".decode() for _ in range(2)]
    assert spellings[0] is not spellings[1]
    tables = tables_of(registration("b1", 0, "m:1", spellings[0], "x"), registration("b2", 0, "o:1", spellings[1], "y"))

    of_table = next(name for name in tables.topic_queue_table if name == "t1")
    for broker_name in ("b1", "b2"):
        of_broker = next(name for name in tables.topics.of_broker[broker_name] if name == "t1")
        assert of_table is of_broker


def test_system_topics_come_with_the_address_of_the_first_broker_by_name() -> None:
    """The list of system topics (304) has clusters, brokers, and an address of the first broker by name."""
    tables = tables_of(registration("b2", 0, "o:1"), registration("b1", 3, "s:1"))

    assert system_topics(tables) == (["b1", "b2", "c1"], "s:1")
    assert system_topics(RouteTables()) == ([], None)


def test_logical_queues_count_as_memory() -> None:
    """A topic with a static mapping takes more memory than one without."""
    tables = tables_of(MASTER)
    without = tables.estimated_bytes()

    apply(tables, Changes(mappings={("t1", "b1"): msgspec.structs.replace(MAPPING, curr_id_map={0: 0, 1: 1})}))

    assert tables.estimated_bytes() > without


@pytest.mark.parametrize(
    ("changes", "affected"),
    [
        (Changes(), set()),
        (Changes(rows={"t1": TopicRow((queue_data("b1", perm=4),))}), {"t1"}),
        (Changes(groups={"b1": BrokerData("c1", "b1", {0: "m:1", 1: "s:1"})}), set()),
        (Changes(groups={"b1": BrokerData("c1", "b1", {0: "m:1"})}), {"t1", "t2"}),
        (Changes(groups={"b2": BrokerData("c1", "b2", {0: "o:1"}, "zone")}), {"t2", "t3"}),
        (Changes(mappings={("t1", "b1"): MAPPING}), {"t1"}),
        (Changes(mappings={("t1", "b1"): None}), set()),
        (
            Changes(groups={"b2": BrokerData("c1", "b2", {0: "o:1"})}, filter_servers={key("o:1"): ("f:1",)}),
            {"t2", "t3"},
        ),
        (Changes(groups={"b2": BrokerData("c1", "b2", {0: "o:1"})}, filter_servers={key("o:1"): ()}), set()),
    ],
    ids=["nothing", "queues", "same group", "address", "zone", "mapping", "mapping stays", "filters", "filters stay"],
)
def test_affected_topics(changes: Changes, affected: set[str]) -> None:
    """Exactly the topics whose responses change are affected: others would be encoded again for nothing."""
    # applying a change uses it up
    assert apply(tables_of(MASTER, SLAVE, OTHER), deepcopy(changes)).rows.keys() == affected


@pytest.mark.parametrize(("advertised", "affected"), [({"outside": "x:1"}, set()), ({}, {"t1", "t2"})])
def test_routes_change_with_the_addresses_that_a_broker_advertises(
    advertised: dict[str, str], affected: set[str]
) -> None:
    """A registration with the same addresses changes no route, one without them changes those of all its topics."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", advertised=AdvertisedAddresses({"outside": "x:1"}))))
    again = replace(MASTER, body=body("t1", "t2", advertised=AdvertisedAddresses(advertised)))

    changes, _ = finished(plan_registration(tables, again, RouteOptions(), 1.0, 2))

    assert apply(tables, changes).rows.keys() == affected


def test_unchanged_topics_are_not_affected() -> None:
    """A topic of an operator that exists already, or whose brokers are unknown, affects no route."""
    tables = tables_of(MASTER, OTHER)

    for topic, queues in (
        ("t2", [queue_data("b1"), queue_data("b2")]),
        ("new", [queue_data("unknown")]),
        ("new", [queue_data("b1"), queue_data("unknown")]),
        ("new", []),
    ):
        assert apply(tables, plan_register_topic(tables, topic, queues)) == RowChanges()
    for topic, cluster in (("t1", "nowhere"), ("unknown", None)):
        assert apply(tables, finished(plan_delete_topic(tables, topic, cluster))) == RowChanges()


def test_removed_broker_is_no_longer_incomplete() -> None:
    """A native broker that lost a deleted topic is forgotten when it leaves; a broker of RocketMQ is not noted."""
    tables = tables_of(replace(MASTER, is_native=True), replace(SLAVE, is_native=True), OTHER)
    for topic in ("t1", "t3"):
        apply(tables, finished(plan_delete_topic(tables, topic, None)))
    assert tables.incomplete == {key("m:1"), key("s:1")}

    remove(tables, key("m:1"))

    assert tables.incomplete == {key("s:1")}
    assert violations(tables) == []


def test_names_of_removed_topics_are_bounded() -> None:
    """Names of removed topics are dropped once there are a few thousand of them."""
    tables = tables_of(MASTER)
    for number in range(3):
        names = [f"t{number}-{topic}" for topic in range(SPARE_NAMES // 2 + 1)]
        register(tables, registration("b9", 0, "x:1", *names))
        remove(tables, key("x:1"))
        assert len(tables.topics.names) <= 2 + SPARE_NAMES + len(names)
    assert violations(tables) == []
