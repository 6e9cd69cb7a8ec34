"""What a registration changes, what it leaves alone, and when it is refused.

The numbers are those of the reference's steps (3.2).
"""

from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.records import BrokerAddrInfo, MinBrokerIdChanged, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.registration import check_registration, plan_registration
from namesrv.routeinfo.tables import CHUNK_TOPICS, Rerouted, RouteTables
from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, ResponseError, SystemError_
from tests.support.route_builders import (
    ROOMY,
    addresses,
    apply,
    body,
    key,
    queue_data,
    register,
    registration,
    rows,
    tables_of,
    topic,
)
from tests.support.route_model import facts_of
from tests.support.steps import finished, steps_and_result
from tests.support.table_invariants import violations

MASTER = registration("b1", 0, "m:1", ha_server_addr="m:2", enable_acting_master=True)
SLAVE = registration("b1", 1, "s:1", ha_server_addr="s:2", enable_acting_master=True)
MAPPING = TopicQueueMappingInfo(topic="t1", bname="b1", epoch=1)
NEWER_MAPPING = TopicQueueMappingInfo(topic="t1", bname="b1", epoch=2)
DROPS_TOPICS = RouteOptions(delete_topic_with_broker_registration=True)
NOTIFIES = RouteOptions(notify_min_broker_id_changed=True)


def native(*topics: Any, kind: Any = "full", **fields: Any) -> Registration:
    """A native registration of b1's master."""
    return registration("b1", 0, "m:1", *topics, is_native=True, kind=kind, agent_id="agent", **fields)


def refusal(tables: RouteTables, refused: Registration) -> ResponseError:
    """How a registration is refused; the tables are as they were before."""
    before = facts_of(tables)
    with pytest.raises(ResponseError) as caught:
        finished(check_registration(tables, refused, RouteOptions(), ROOMY))
    assert before == facts_of(tables)
    assert [] == violations(tables)
    return caught.value


# ---- 1, 2, 7: the group ----


def test_first_broker_makes_cluster_group_and_topics() -> None:
    """A first registration is all that a name, a cluster and its topics need."""
    tables = tables_of(replace(MASTER, zone_name="z1"))

    assert {"c1": frozenset({"b1"})} == tables.cluster_addr_table
    assert {"b1": BrokerData("c1", "b1", {0: "m:1"}, "z1", enable_acting_master=True)} == tables.broker_addr_table
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)


def test_broker_without_topics_is_registered() -> None:
    """A broker may have none, and is no partial registration then."""
    tables = tables_of(registration("b1", 0, "m:1", body=body()))

    assert {"b1": {0: "m:1"}} == addresses(tables)
    assert {} == tables.topic_queue_table


def test_last_registrant_says_what_zone_the_group_is_in_and_whether_a_slave_may_act() -> None:
    """What is not said is taken back: no zone, and no acting master."""
    tables = tables_of(replace(MASTER, zone_name="z1"), registration("b1", 1, "s:1"))

    group = tables.broker_addr_table["b1"]
    assert (None, False) == (group.zone_name, group.enable_acting_master)


def test_one_name_in_two_clusters_is_one_group() -> None:
    """A name is global: the group keeps the first cluster's name, and is listed under both."""
    tables = tables_of(MASTER, replace(SLAVE, cluster_name="c2"))

    assert {"c1": frozenset({"b1"}), "c2": frozenset({"b1"})} == tables.cluster_addr_table
    assert BrokerData("c1", "b1", {0: "m:1", 1: "s:1"}, enable_acting_master=True) == tables.broker_addr_table["b1"]
    assert [key("m:1"), key("s:1", "c2")] == list(tables.broker_live_table)


def test_negative_ids_are_taken() -> None:
    """DLedger candidates register as -1."""
    assert {"b1": {-1: "m:1"}} == addresses(tables_of(registration("b1", -1, "m:1")))


# ---- 4: the same address under another id ----


@pytest.mark.parametrize(("former", "latter"), [(0, 1), (1, 0), (2, 1)])
def test_same_address_under_another_id_is_the_same_broker_in_another_role(former: int, latter: int) -> None:
    """A master that became a slave, or the other way round, is in the group once, and alive once."""
    tables = tables_of(replace(SLAVE, broker_id=former), replace(SLAVE, broker_id=latter))

    assert {"b1": {latter: "s:1"}} == addresses(tables)
    assert [latter] == [live.broker_id for live in tables.broker_live_table.values()]
    assert [] == violations(tables)


def test_master_and_slave_change_places() -> None:
    """switchBrokerRole: the slave's address becomes the master, the old master comes back as the slave."""
    tables = tables_of(MASTER, SLAVE)

    register(tables, replace(SLAVE, broker_id=0))
    assert {"b1": {0: "s:1"}} == addresses(tables)

    register(tables, replace(MASTER, broker_id=1))
    assert {"b1": {0: "s:1", 1: "m:1"}} == addresses(tables)
    assert [] == violations(tables)


# ---- 5: two addresses for one id ----


@pytest.mark.parametrize(("held", "offered"), [(0, 0), (3, 3), (3, 4)])
def test_new_address_takes_the_id_with_an_equal_or_higher_state_version(held: int, offered: int) -> None:
    """The displaced broker leaves entirely, its live entry included: nothing would ever remove that otherwise."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", state_version=held)))

    (plan,) = register(tables, replace(MASTER, broker_addr="n:1", body=body("t1", "t2", state_version=offered)))

    assert (key("m:1"),) == plan.displaced
    assert {"b1": {0: "n:1"}} == addresses(tables)
    assert [key("n:1")] == list(tables.broker_live_table)
    assert [] == violations(tables)


def test_lower_state_version_is_refused_by_name() -> None:
    """A master of a former term does not come back; it is told so, and leaves no trace."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", state_version=3)))

    refused = refusal(tables, replace(MASTER, broker_addr="n:1", body=body("t1", "t2", state_version=2)))

    assert isinstance(refused, BadRequestError)
    assert "field stateVersion: 2 is lower than 3 of m:1, which holds id 0 of b1" == str(refused)
    assert {} == refused.ext_fields


def test_no_data_version_counts_as_state_version_zero() -> None:
    """A broker that names none loses against any that has a term, and wins against one that has none."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", state_version=1)))
    assert isinstance(
        refusal(tables, replace(MASTER, broker_addr="n:1", body=body("t1", "t2", data_version=None))), BadRequestError
    )

    tables = tables_of(replace(MASTER, body=body("t1", "t2", data_version=None)))
    register(tables, replace(MASTER, broker_addr="n:1", body=body("t1", "t2", data_version=None)))
    assert {"b1": {0: "n:1"}} == addresses(tables)


def test_same_address_may_lower_its_own_state_version() -> None:
    """Only another address is in conflict: a broker that lost its disk starts again."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", state_version=3)))

    register(tables, replace(MASTER, body=body("t1", "t2", state_version=0)))

    assert DataVersion(1, 0) == tables.broker_live_table[key("m:1")].data_version


def test_displaced_in_another_cluster_leaves_too() -> None:
    """The id is the name's, whatever the cluster: the entry under the other cluster would be in no group."""
    tables = tables_of(MASTER)

    (plan,) = register(tables, replace(MASTER, cluster_name="c2", broker_addr="n:1"))

    assert (key("m:1"),) == plan.displaced
    assert [key("n:1", "c2")] == list(tables.broker_live_table)
    assert [] == violations(tables)


def test_broker_that_moves_to_another_cluster_is_alive_once() -> None:
    """Its former entry would expire later and take the group along."""
    tables = tables_of(MASTER)

    (plan,) = register(tables, replace(MASTER, cluster_name="c2"))

    assert (key("m:1"),) == plan.displaced
    assert [key("m:1", "c2")] == list(tables.broker_live_table)
    assert [] == violations(tables)


def test_same_address_in_another_cluster_under_another_name_is_another_broker() -> None:
    """Two clusters may use one address (in two networks): neither knows of the other's DataVersion."""
    tables = tables_of(
        registration("b1", 0, "m:1", body=body("t1", "t2", counter=10)),
        registration("b9", 0, "m:1", body=body("t1", "t2", counter=20), cluster_name="c2"),
    )

    assert DataVersion(10) == tables.broker_live_table[key("m:1")].data_version
    assert DataVersion(20) == tables.broker_live_table[key("m:1", "c2")].data_version
    assert [] == violations(tables)


def test_another_broker_at_the_address_in_another_cluster_is_not_displaced() -> None:
    """Even if the name is known in that cluster, too."""
    tables = tables_of(
        registration("b1", 1, "s:1", cluster_name="c2"), registration("b9", 0, "m:1", cluster_name="c2"), MASTER
    )

    assert [key("s:1", "c2"), key("m:1", "c2"), key("m:1")] == list(tables.broker_live_table)
    assert [] == violations(tables)


# ---- 6: a part taken for the whole ----


def test_first_registration_with_exactly_one_topic_is_refused() -> None:
    """It could be an increment that overtook the full table; the broker says it again, fully, within 30 s."""
    refused = refusal(RouteTables(), registration("b1", 0, "m:1", "t1"))

    assert isinstance(refused, SystemError_)
    assert "register broker failed" == str(refused)
    assert {} == refused.ext_fields


@pytest.mark.parametrize("broker_id", [0, 1, -1])
def test_first_registration_of_an_id_counts(broker_id: int) -> None:
    """A group that is known already makes no difference to an id that is not."""
    tables = tables_of(registration("b1", 7, "x:1"))

    assert isinstance(refusal(tables, registration("b1", broker_id, "m:1", "t1")), SystemError_)


def test_topic_named_twice_is_one_topic() -> None:
    """The topic table of Java is keyed by topic."""
    assert isinstance(refusal(RouteTables(), registration("b1", 0, "m:1", "t1", topic("t1", perm=4))), SystemError_)


def test_one_topic_is_enough_once_the_id_is_known() -> None:
    """An increment adds to what is there."""
    tables = tables_of(MASTER, registration("b1", 0, "m:1", "t3"))

    assert {"t1": {"b1": 6}, "t2": {"b1": 6}, "t3": {"b1": 6}} == rows(tables)


def test_native_registration_with_one_topic_is_taken() -> None:
    """It says that it is the whole."""
    assert {"t1": {"b1": 6}} == rows(tables_of(native("t1")))


# ---- 8: who makes routes ----


@pytest.mark.parametrize(
    ("broker_id", "acts", "makes_routes"),
    [
        (0, None, True),
        (0, False, True),
        (1, False, True),
        (1, True, True),
        (-1, True, True),
        # a broker older than 5.x, which does not say
        (1, None, False),
        (-1, None, False),
    ],
)
def test_who_makes_routes_alone(broker_id: int, acts: bool | None, makes_routes: bool) -> None:  # noqa: FBT001
    """A master always; a lone slave only if it is a 5.x broker."""
    tables = tables_of(registration("b1", broker_id, "m:1", enable_acting_master=acts))

    assert makes_routes == ("t1" in tables.topic_queue_table)


@pytest.mark.parametrize(("broker_id", "makes_routes"), [(1, True), (2, False), (3, False)])
def test_only_the_slave_with_the_smallest_id_makes_routes(broker_id: int, makes_routes: bool) -> None:  # noqa: FBT001
    """The prime slave stands in for the master."""
    tables = tables_of(registration("b1", 2, "x:1", body=body(), enable_acting_master=True))

    register(tables, registration("b1", broker_id, "s:1", enable_acting_master=True))

    # as id 2 it takes the other one's place
    assert (makes_routes or broker_id == 2) == ("t1" in tables.topic_queue_table)


def test_slave_of_a_master_makes_no_routes() -> None:
    """registerSlaveBroker, createNewTopic: the group has both addresses, the topics are the master's."""
    tables = tables_of(MASTER, replace(SLAVE, body=body("t1", "only-slave")))
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)

    register(tables, replace(MASTER, body=body("t1", "t2", "new", counter=2)))
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}, "new": {"b1": 6}} == rows(tables)
    assert {"b1": {0: "m:1", 1: "s:1"}} == addresses(tables)


def test_id_below_zero_beside_a_master_takes_its_write_permission() -> None:
    """-1 is smaller than the master's id: as in Java the candidate is the prime slave (apache/rocketmq#7626)."""
    tables = tables_of(MASTER, registration("b1", -1, "x:1", enable_acting_master=True))

    assert {"t1": {"b1": 4}, "t2": {"b1": 4}} == rows(tables)


# ---- 8a: topics that are not named any more ----


@pytest.mark.parametrize(
    ("options", "left"), [(RouteOptions(), ["t1", "t2", "t3"]), (DROPS_TOPICS, ["t1", "t3"])], ids=["off", "on"]
)
def test_dropped_topic_stays_unless_the_setting_says_otherwise(options: RouteOptions, left: list[str]) -> None:
    """keepTopicWithBrokerRegistration, deleteTopicWithBrokerRegistration: a registration may be a part of the table."""
    tables = tables_of(MASTER)

    register(tables, replace(MASTER, body=body("t1", "t3", counter=2)), options=options)

    assert left == sorted(tables.topic_queue_table)


def test_topic_is_dropped_only_for_the_broker_that_dropped_it() -> None:
    """deleteTopicWithBrokerRegistration2: the other one still has it."""
    tables = tables_of(MASTER, registration("b2", 0, "o:1"))

    register(tables, replace(MASTER, body=body("t1", "t3")), options=DROPS_TOPICS)

    assert {"t1": {"b1": 6, "b2": 6}, "t2": {"b2": 6}, "t3": {"b1": 6}} == rows(tables)


def test_no_topic_is_dropped_by_a_registration_with_static_topics() -> None:
    """As in Java: such a registration is a part by its nature."""
    tables = tables_of(MASTER)

    register(tables, replace(MASTER, body=body("t1", "t3", mappings={"t1": MAPPING})), options=DROPS_TOPICS)

    assert ["t1", "t2", "t3"] == sorted(tables.topic_queue_table)


def test_native_full_registration_is_the_whole() -> None:
    """It says so, and needs no setting for it."""
    tables = tables_of(native("t1", "t2"), registration("b2", 0, "o:1"))

    register(tables, native("t1", "t3"))

    assert {"t1": {"b1": 6, "b2": 6}, "t2": {"b2": 6}, "t3": {"b1": 6}} == rows(tables)


def test_native_delta_adds_changes_and_deletes() -> None:
    """What it does not name stays; deleting what is not there is nothing."""
    tables = tables_of(native("t1", "t2", "t3"))

    register(tables, native(kind="delta", body=body("t4", topic("t1", perm=4), deleted_topics=("t2", "never-there"))))

    assert {"t1": {"b1": 4}, "t3": {"b1": 6}, "t4": {"b1": 6}} == rows(tables)


def test_slave_without_routes_drops_none() -> None:
    """What a slave names or does not name says nothing about its master's topics."""
    tables = tables_of(MASTER, replace(SLAVE, body=body("x", "y")), options=DROPS_TOPICS)

    assert ["t1", "t2"] == sorted(tables.topic_queue_table)


# ---- 8b: what is registered counts ----


@pytest.mark.parametrize("counter", [0, 1, 2], ids=["older", "equal", "newer"])
def test_registered_queues_count_whatever_the_data_version_says(counter: int) -> None:
    """Never skip on an equal DataVersion: an increment that got lost would stay hidden for ever."""
    tables = tables_of(MASTER)

    register(tables, replace(MASTER, body=body(topic("t1", 4, 4, 2), "t3", counter=counter)))

    assert (queue_data("b1", 4, 4, 2),) == tables.topic_queue_table["t1"]
    assert (queue_data("b1"),) == tables.topic_queue_table["t3"]
    assert DataVersion(counter) == tables.broker_live_table[key("m:1")].data_version


def test_unchanged_topics_change_no_row() -> None:
    """What is registered again as it is costs no route its cached answer."""
    tables = tables_of(MASTER)

    finished(check_registration(tables, MASTER, RouteOptions(), ROOMY))
    _, plan = steps_and_result(plan_registration(tables, MASTER, RouteOptions(), 1.0, 2))

    assert {} == plan.changes.rows
    assert Rerouted() == apply(tables, plan.changes)


@pytest.mark.parametrize("known", [(), ("t1", "t2")], ids=["new topics", "known topics"])
def test_topic_named_twice_is_what_was_said_last(known: tuple[str, ...]) -> None:
    """The value's name counts in Java's table, and two keys may hold the same one."""
    tables = tables_of(registration("b1", 0, "m:1", body=body(*known)))

    register(tables, registration("b1", 0, "m:1", topic("t1", 4), "t2", topic("t1")))

    assert (queue_data("b1"),) == tables.topic_queue_table["t1"]
    assert [] == violations(tables)


def test_different_read_and_write_queues_pass_unchanged() -> None:
    """Asymmetric queues, foreign permission bits and flags are the broker's business."""
    tables = tables_of(registration("b1", 0, "m:1", TopicConfig("t1", 4, 16, 9, 3), "t2"))

    assert (QueueData("b1", 4, 16, 9, 3),) == tables.topic_queue_table["t1"]


# ---- 8c: write permission ----


def test_lone_slave_that_may_act_registers_without_write_permission() -> None:
    """registerOnlySlaveBroker: nobody takes writes until the master is back; then they are as it says."""
    tables = tables_of(replace(SLAVE, body=body("t1", topic("t2", perm=2))))
    assert {"t1": {"b1": 4}, "t2": {"b1": 0}} == rows(tables)

    register(tables, MASTER)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)


def test_lone_slave_that_may_not_act_registers_as_it_is() -> None:
    """enableActingMaster=false: full permission, as in Java."""
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables_of(replace(SLAVE, enable_acting_master=False)))


@pytest.mark.parametrize("counter", [1, 2], ids=["same version", "new version"])
def test_wiped_permission_stays_wiped(counter: int) -> None:
    """Java gives it back with the broker's next change; an operator who took it away means it."""
    tables = tables_of(MASTER)
    tables.wiped.add("b1")

    register(tables, replace(MASTER, body=body("t1", topic("t2", perm=7), "new", counter=counter)))

    assert {"t1": {"b1": 4}, "t2": {"b1": 5}, "new": {"b1": 4}} == rows(tables)


# ---- 8d: static mappings ----


def test_mapping_is_stored_and_replaced() -> None:
    """By topic and broker name; one that is not sent again stays, as a registration may be a part."""
    tables = tables_of(registration("b1", 0, "m:1", body=body("t1", "t2", mappings={"t1": MAPPING})))
    assert {"t1": {"b1": MAPPING}} == tables.topic_queue_mapping_info_table

    register(tables, registration("b1", 0, "m:1", body=body("t1", "t2", mappings={"t1": NEWER_MAPPING})))
    assert {"t1": {"b1": NEWER_MAPPING}} == tables.topic_queue_mapping_info_table

    register(tables, MASTER)
    assert {"t1": {"b1": NEWER_MAPPING}} == tables.topic_queue_mapping_info_table


def test_mapping_without_queues_is_not_stored() -> None:
    """It would hang until a topic of that name comes along, and be served with it."""
    tables = tables_of(registration("b1", 0, "m:1", body=body("t1", "t2", mappings={"t9": MAPPING})))

    assert {} == tables.topic_queue_mapping_info_table


def test_slave_that_makes_no_routes_makes_no_mappings() -> None:
    """They belong to the topics."""
    tables = tables_of(MASTER, replace(SLAVE, body=body("t1", "t2", mappings={"t1": MAPPING})))

    assert {} == tables.topic_queue_mapping_info_table


def test_native_full_registration_drops_mappings_that_it_does_not_name() -> None:
    """It is the whole; a delta, and what others registered, leave them."""
    theirs = TopicQueueMappingInfo(topic="t1", bname="b2")
    tables = tables_of(
        native(body=body("t1", "t2", mappings={"t1": MAPPING})),
        registration("b2", 0, "o:1", body=body("t1", "t2", mappings={"t1": theirs})),
    )
    register(tables, native("t3", kind="delta"))
    assert {"t1": {"b1": MAPPING, "b2": theirs}} == tables.topic_queue_mapping_info_table

    register(tables, native("t1", "t2"))
    assert {"t1": {"b2": theirs}} == tables.topic_queue_mapping_info_table


# ---- 9, 10: the live entry and filter servers ----


def test_live_entry_is_replaced_whole() -> None:
    """Time, expiry, version, connection, HA address: all are of the latest registration."""
    tables = tables_of(MASTER)
    latter = replace(MASTER, body=body("t1", counter=7), connection_id=5, expiry_seconds=10.0, ha_server_addr="m:9")

    register(tables, latter, now=30.0)

    live = tables.broker_live_table[key("m:1")]
    assert (30.0, 10.0, 40.0) == (live.last_update, live.expiry_seconds, live.expires_at())
    assert (DataVersion(7), 5, "m:9") == (live.data_version, live.connection_id, live.ha_server_addr)
    assert {5: {key("m:1")}} == tables.brokers_on_connection


def test_broker_that_names_no_data_version_has_none() -> None:
    """None is no version that anything equals."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", data_version=None)))

    assert tables.broker_live_table[key("m:1")].data_version is None


@pytest.mark.parametrize(
    ("said", "kept"), [(None, {key("m:1"): ("f:1",)}), ((), {}), (("f:2", "f:3"), {key("m:1"): ("f:2", "f:3")})]
)
def test_filter_servers(said: tuple[str, ...] | None, kept: dict[BrokerAddrInfo, tuple[str, ...]]) -> None:
    """Not said: untouched; none: removed; else replaced."""
    tables = tables_of(replace(MASTER, body=body("t1", "t2", filter_servers=("f:1",))))

    register(tables, replace(MASTER, body=body("t1", "t2", filter_servers=said)))

    assert kept == tables.filter_server_table


# ---- 11: what a slave is told ----


@pytest.mark.parametrize(
    ("slave", "told"),
    [
        (SLAVE, RegisterResult("m:1", "m:2")),
        (replace(SLAVE, broker_id=-1), RegisterResult("m:1", "m:2")),
        # another cluster's master is not its master
        (replace(SLAVE, cluster_name="c2"), RegisterResult()),
        (replace(SLAVE, broker_name="b9"), RegisterResult()),
        # a master is told nothing, not even about itself
        (MASTER, RegisterResult()),
        # the master's own address, now a slave: there is no master any more
        (replace(MASTER, broker_id=1), RegisterResult()),
    ],
    ids=["slave", "negative id", "other cluster", "other group", "master", "former master"],
)
def test_what_a_broker_is_told_about_its_master(slave: Registration, told: RegisterResult) -> None:
    """Address and HA address of the group's master, if it is alive in the same cluster."""
    (plan,) = register(tables_of(MASTER), slave)

    assert told == plan.result


# ---- 12: the smallest id ----


@pytest.mark.parametrize(
    ("group", "newcomer", "recipients"),
    [
        # first members: nothing to be told, except below the 0 that an empty group counts as
        ([], (0, "m:1"), None),
        ([], (1, "m:1"), None),
        ([], (-1, "m:1"), ("m:1",)),
        ([(1, "s:1"), (2, "s:2")], (0, "m:1"), ("s:1", "s:2")),
        ([(0, "m:1")], (1, "s:1"), None),
        ([(2, "s:2")], (1, "s:1"), ("s:2",)),
        # the same address in another role: alone in the group, it is told itself
        ([(1, "m:1")], (0, "m:1"), ("m:1",)),
    ],
)
def test_members_are_told_of_a_smaller_id(
    group: list[tuple[int, str]], newcomer: tuple[int, str], recipients: tuple[str, ...] | None
) -> None:
    """All but the newcomer, whether or not a slave may act."""
    tables = tables_of(*(registration("b1", number, addr) for number, addr in group))

    (plan,) = register(tables, registration("b1", *newcomer, ha_server_addr="ha:1"), options=NOTIFIES)

    told = recipients and MinBrokerIdChanged("b1", *newcomer, recipients, ha_broker_addr="ha:1")
    assert told == plan.min_id_changed


def test_nobody_is_told_while_the_setting_is_off() -> None:
    """The default."""
    (plan,) = register(tables_of(SLAVE), MASTER)

    assert plan.min_id_changed is None


# ---- native deltas ----


def test_delta_of_an_unknown_broker_is_refused() -> None:
    """The server has restarted, or the broker was evicted: the whole is wanted."""
    assert isinstance(refusal(RouteTables(), native("t3", kind="delta")), QueryNotFoundError)


@pytest.mark.parametrize(
    "delta",
    [
        replace(native("t3", kind="delta"), agent_id="another process"),
        replace(native("t3", kind="delta"), broker_name="b9"),
        replace(native("t3", kind="delta"), broker_id=1),
        replace(native("t3", kind="delta"), cluster_name="c2"),
    ],
    ids=["other process", "other name", "other id", "other cluster"],
)
def test_delta_of_what_is_not_registered_is_refused(delta: Registration) -> None:
    """Its sender has to register fully, and nothing has changed until then."""
    refused = refusal(tables_of(native("t1", "t2")), delta)

    assert isinstance(refused, QueryNotFoundError)
    assert f"broker {delta.broker_name} at m:1 is not registered" == str(refused)


# ---- chunks ----


@pytest.mark.parametrize(
    ("topics", "yields"), [(0, 0), (CHUNK_TOPICS - 1, 0), (CHUNK_TOPICS, 1), (10 * CHUNK_TOPICS + 1, 10)]
)
def test_large_registration_lets_others_run(topics: int, yields: int) -> None:
    """After every thousand topics, about a millisecond."""
    tables = RouteTables()
    large = registration("b1", 0, "m:1", body=body(*(f"t{number}" for number in range(topics))))

    assert yields == steps_and_result(plan_registration(tables, large, RouteOptions(), 0.0, 1))[0]
    assert "<RouteTables [0 clusters | 0 groups | 0 live | 0 topics]>" == repr(tables)


def test_many_mappings_let_others_run() -> None:
    """Those that come, and natively those that may go."""
    mappings = {f"t{number}": TopicQueueMappingInfo(f"t{number}") for number in range(3 * CHUNK_TOPICS)}
    large = native(*mappings)
    large = replace(large, body=replace(large.body, mappings=mappings))
    options = RouteOptions()

    assert 9 == steps_and_result(plan_registration(RouteTables(), large, options, 0.0, 1))[0]
    assert 15 == steps_and_result(plan_registration(tables_of(large), large, options, 0.0, 2))[0]


def test_dropping_many_topics_lets_others_run() -> None:
    """Working out what goes costs as much as what comes."""
    tables = tables_of(native(*(f"t{number}" for number in range(3 * CHUNK_TOPICS))))

    yields, plan = steps_and_result(plan_registration(tables, native("t0"), RouteOptions(), 0.0, 1))

    assert 5 == yields
    assert 3 * CHUNK_TOPICS - 1 == len(plan.changes.rows)


def test_older_registration_of_the_same_agent_changes_nothing() -> None:
    """What an agent said before what it said last is not so any more, over whichever connection it comes."""
    newest = replace(native("T2"), registration_seq=5)
    tables = tables_of(newest)

    error = refusal(tables, replace(native("T1"), registration_seq=4))
    assert "field registrationSeq: 4 is older than the registered 5" == error.remark


@pytest.mark.parametrize(("agent_id", "registration_seq"), [("agent", 5), ("agent", 6), ("other", 1)])
def test_registration_that_is_not_older_is_taken(agent_id: str, registration_seq: int) -> None:
    """The same number again, a later one, and another process of the broker, which counts from the beginning."""
    tables = tables_of(replace(native("T2"), registration_seq=5))

    check_registration(
        tables, replace(native("T1"), agent_id=agent_id, registration_seq=registration_seq), RouteOptions(), ROOMY
    )
