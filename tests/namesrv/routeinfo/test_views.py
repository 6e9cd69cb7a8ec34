"""Views say what the tables hold."""

from dataclasses import replace

import pytest

from namesrv.routeinfo import views
from namesrv.routeinfo.records import Registration, RouteOptions
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.bodies.zone import in_zone
from tests.support.route_builders import body, key, queue_data, register, registration, remove, tables_of

MASTER = registration("b1", 0, "m:1", enable_acting_master=True)
SLAVE = registration("b1", 1, "s:1", enable_acting_master=True)
ACTING = RouteOptions(support_acting_master=True)
ORDERED = RouteOptions(order_message_enable=True)


def route(
    tables: RouteTables, name: str = "t1", options: RouteOptions | None = None, order_conf: str | None = None
) -> TopicRouteData:
    """A route that exists."""
    found = views.topic_route(tables, name, options or RouteOptions(), order_conf)
    assert found is not None
    return found


def shown(
    tables: RouteTables, options: RouteOptions = ACTING, name: str = "t1"
) -> dict[str, tuple[dict[int, str], int]]:
    """Broker name -> (addresses, permission) as a client sees them."""
    found = route(tables, name, options)
    perms = {queues.broker_name: queues.perm for queues in found.queue_datas}
    return {group.broker_name: (dict(group.broker_addrs), perms[group.broker_name]) for group in found.broker_datas}


# ---- routes ----


def test_route_of_one_broker() -> None:
    """pickupTopicRouteData: one broker, 8 and 8 queues, perm 6, and nothing that is not there."""
    assert (
        TopicRouteData(
            [BrokerData("c1", "b1", {0: "m:1"}, None, enable_acting_master=True)], (queue_data("b1"),), {}, None, None
        )
        == route(tables_of(MASTER))
    )  # fmt: skip


def test_route_of_two_brokers() -> None:
    """pickupTopicRouteData: a second broker name makes two and two, in the same order in both lists."""
    found = route(tables_of(registration("b2", 0, "o:1"), MASTER))

    assert ["b1", "b2"] == [group.broker_name for group in found.broker_datas]
    assert ["b1", "b2"] == [queues.broker_name for queues in found.queue_datas]


def test_unknown_topic_has_no_route() -> None:
    """None, not an empty route."""
    assert views.topic_route(tables_of(MASTER), "nothing", RouteOptions()) is None


def test_static_mappings_are_in_the_route() -> None:
    """By broker name."""
    mapping = TopicQueueMappingInfo(topic="t1", bname="b1", epoch=1)
    tables = tables_of(replace(MASTER, body=body("t1", "t2", mappings={"t1": mapping})))

    assert {"b1": mapping} == route(tables).topic_queue_mapping_by_broker
    assert route(tables, "t2").topic_queue_mapping_by_broker is None


def test_order_configuration_is_shown_only_if_orders_are_on() -> None:
    """Java clients take the static-topic path only without one."""
    tables = tables_of(MASTER)

    assert route(tables, order_conf="b1:4").order_topic_conf is None
    assert "b1:4" == route(tables, options=ORDERED, order_conf="b1:4").order_topic_conf
    assert route(tables, options=ORDERED).order_topic_conf is None


def test_filter_servers_of_all_addresses_that_have_some() -> None:
    """Those of other groups, and addresses without any, are not there."""
    tables = tables_of(
        MASTER,
        replace(SLAVE, body=body(filter_servers=("f:1", "f:2"))),
        registration("b2", 0, "o:1", body=body("t3", "t4", filter_servers=("f:3",))),
    )

    assert {"s:1": ("f:1", "f:2")} == route(tables).filter_server_table
    assert {"o:1": ("f:3",)} == route(tables, "t3").filter_server_table


def test_filter_servers_are_the_groups_own() -> None:
    """A group that has moved keeps its first cluster's name, where its address may be somebody else's now."""
    tables = tables_of(
        MASTER,
        replace(MASTER, cluster_name="c2"),
        registration("b9", 0, "m:1", body=body("t8", "t9", filter_servers=("f:9",))),
    )

    assert {} == route(tables).filter_server_table
    assert {"m:1": ("f:9",)} == route(tables, "t9").filter_server_table


# ---- acting master ----


def test_master_that_leaves_is_replaced_by_its_slave() -> None:
    """unRegisterMasterBroker: the slave appears under id 0, not writable; the master's return undoes it."""
    tables = tables_of(MASTER, SLAVE)
    assert {"b1": ({0: "m:1", 1: "s:1"}, 6)} == shown(tables)

    remove(tables, key("m:1"))
    assert {"b1": ({0: "s:1"}, 4)} == shown(tables)

    register(tables, MASTER)
    assert {"b1": ({1: "s:1", 0: "m:1"}, 6)} == shown(tables)


def test_lone_slave_is_shown_as_the_master() -> None:
    """pickupGlobalOrderTopicRouteData, registerOnlySlaveBroker: id 0, not writable."""
    assert {"b1": ({0: "s:1"}, 4)} == shown(tables_of(SLAVE))


def test_smallest_id_acts() -> None:
    """The others stay what they are."""
    tables = tables_of(replace(SLAVE, broker_id=3, broker_addr="s:3"), replace(SLAVE, broker_id=2, broker_addr="s:2"))

    assert {"b1": ({0: "s:2", 3: "s:3"}, 4)} == shown(tables)


def test_only_the_group_without_a_master_is_changed() -> None:
    """The other one is shown as it is (pickupPartitionOrderTopicRouteData)."""
    tables = tables_of(SLAVE, registration("b2", 0, "o:1", enable_acting_master=True))

    assert {"b1": ({0: "s:1"}, 4), "b2": ({0: "o:1"}, 6)} == shown(tables)


@pytest.mark.parametrize(
    ("slave", "options"),
    [(SLAVE, RouteOptions()), (replace(SLAVE, enable_acting_master=False), ACTING)],
    ids=["setting off", "group does not let it"],
)
def test_slave_stays_a_slave(slave: Registration, options: RouteOptions) -> None:
    """Both the server and the group have to want it."""
    assert {1: "s:1"} == shown(tables_of(slave), options)["b1"][0]


def test_slave_of_a_writable_topic_stays_a_slave() -> None:
    """Somebody gave the write permission back (327): clients are not to write to the slave as to a master."""
    tables = tables_of(SLAVE)
    register(tables, replace(SLAVE, enable_acting_master=False))
    register(tables, replace(SLAVE, broker_id=2, broker_addr="s:2", body=body()))
    assert tables.broker_addr_table["b1"].enable_acting_master

    assert {"b1": ({1: "s:1", 2: "s:2"}, 6)} == shown(tables)


def test_brokers_own_topic_shows_the_group_as_it_is() -> None:
    """rmq_sys_SYNC_BROKER_MEMBER_: by it brokers learn who their master is."""
    name = "rmq_sys_SYNC_BROKER_MEMBER_b1"
    tables = tables_of(replace(SLAVE, body=body(name, "t1")))

    assert {"b1": ({1: "s:1"}, 4)} == shown(tables, name=name)
    assert {"b1": ({0: "s:1"}, 4)} == shown(tables)


# ---- zones ----


def zoned() -> RouteTables:
    """Three groups in two zones and none, with filter servers, all on t1."""
    return tables_of(
        registration("b1", 0, "m:1", zone_name="Z1", body=body("t1", "x", filter_servers=("f:1",))),
        registration("b2", 0, "o:1", zone_name="z2", body=body("t1", "x", filter_servers=("f:2",))),
        registration("b3", 0, "p:1"),
    )


@pytest.mark.parametrize(
    ("zone", "names"), [("Z1", ["b1"]), ("z1", ["b1"]), ("Z2", ["b2"]), ("elsewhere", []), ("z", [])]
)
def test_zone_sees_its_own_groups(zone: str, names: list[str]) -> None:
    """Whatever the case; queues and filter servers of the others go with them. An unknown zone sees nothing."""
    found = in_zone(route(zoned()), zone)

    assert names == [group.broker_name for group in found.broker_datas]
    assert names == [queues.broker_name for queues in found.queue_datas]
    assert [{"b1": "m:1", "b2": "o:1"}[name] for name in names] == list(found.filter_server_table)


def test_zone_sees_groups_whose_master_is_down() -> None:
    """Their slaves are read from wherever they are."""
    tables = zoned()
    register(tables, registration("b2", 1, "s:1", zone_name="z2", body=body(filter_servers=("f:4",))))
    remove(tables, key("o:1"))

    found = in_zone(route(tables), "z1")

    assert ["b1", "b2"] == [group.broker_name for group in found.broker_datas]
    assert {"m:1": ("f:1",), "s:1": ("f:4",)} == found.filter_server_table


def test_zone_leaves_the_rest_of_a_route() -> None:
    """Order configuration and static mappings are not by zone."""
    mapping = TopicQueueMappingInfo(topic="t1", bname="b1")
    tables = tables_of(replace(MASTER, zone_name="z1", body=body("t1", "x", mappings={"t1": mapping})))

    found = in_zone(route(tables, options=ORDERED, order_conf="b1:4"), "z9")

    assert ("b1:4", {"b1": mapping}) == (found.order_topic_conf, found.topic_queue_mapping_by_broker)


# ---- lists ----


def test_system_topics() -> None:
    """Names of clusters and brokers, and an address of one of them; none in an empty server."""
    tables = tables_of(MASTER, registration("b2", 0, "o:1", cluster_name="c2"))

    assert (["b1", "b2", "c1", "c2"], "m:1") == views.system_topics(tables)
    assert ([], None) == views.system_topics(RouteTables())
