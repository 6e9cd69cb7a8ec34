"""Which brokers leave at which moment, and what that changes."""

from dataclasses import replace

import pytest

from namesrv.routeinfo.eviction import plan_perms, plan_removal, silent_brokers
from namesrv.routeinfo.records import BrokerAddrInfo, MinBrokerIdChanged, RouteOptions
from namesrv.routeinfo.tables import CHUNK_TOPICS, Changes, RouteTables
from tests.support.route_builders import (
    addresses,
    apply,
    body,
    key,
    register,
    registration,
    remove,
    rows,
    tables_of,
    topic,
)
from tests.support.steps import finished, steps_and_result
from tests.support.table_invariants import violations

MASTER = registration("b1", 0, "m:1", enable_acting_master=True)
SLAVE = registration("b1", 1, "s:1", enable_acting_master=True)
NOTIFIES = RouteOptions(notify_min_broker_id_changed=True)


def hear(tables: RouteTables, broker: BrokerAddrInfo, now: float) -> None:
    """A heartbeat."""
    live = tables.broker_live_table[broker]
    tables.set_live(broker, live.heard(now, live.connection_id, None))


# ---- who is silent ----


@pytest.mark.parametrize(("silent_for", "evicted"), [(119.9, []), (120.0, []), (120.1, [key("m:1")])])
def test_broker_expires_strictly_after_its_expiry(silent_for: float, evicted: list[BrokerAddrInfo]) -> None:
    """A broker may be silent for exactly 120 s; the first instant after that it is gone."""
    tables = tables_of(MASTER, now=1_000.0)

    assert evicted == silent_brokers(tables, now=1_000.0 + silent_for)


@pytest.mark.parametrize(("silent_for", "evicted"), [(119.9, []), (120.0, []), (120.1, [key("m:1")])])
def test_heartbeat_starts_the_expiry_again(silent_for: float, evicted: list[BrokerAddrInfo]) -> None:
    """Silence counts from the last sign of life."""
    tables = tables_of(MASTER, now=1_000.0)
    hear(tables, key("m:1"), 1_119.5)

    assert evicted == silent_brokers(tables, now=1_119.5 + silent_for)


@pytest.mark.parametrize(
    ("silent_for", "evicted"),
    [
        (9.9, []),
        (10.0, []),
        (10.1, ["quick:1"]),
        (120.0, ["quick:1"]),
        (120.1, ["quick:1", "usual:1"]),
        (600.1, ["quick:1", "usual:1", "patient:1"]),
    ],
)
def test_each_broker_has_its_own_expiry(silent_for: float, evicted: list[str]) -> None:
    """heartbeatTimeoutMillis; longest overdue first."""
    tables = tables_of(
        registration("b1", 0, "patient:1", expiry_seconds=600.0),
        registration("b2", 0, "quick:1", expiry_seconds=10.0),
        registration("b3", 0, "usual:1"),
    )

    assert [key(addr) for addr in evicted] == silent_brokers(tables, silent_for)


def test_longest_overdue_comes_first() -> None:
    """Equal deadlines in the order of their keys: the same every time."""
    tables = RouteTables()
    for name, heard_at in (("d", 3.0), ("c", 1.0), ("b", 2.0), ("a", 2.0)):
        register(tables, registration(name, 0, f"{name}:1"), now=heard_at)

    assert [key("c:1"), key("a:1"), key("b:1"), key("d:1")] == silent_brokers(tables, 1_000.0)


def test_looking_changes_nothing() -> None:
    """Whoever is due and not evicted after all is found by the next scan again."""
    tables = tables_of(MASTER, SLAVE)
    hear(tables, key("s:1"), 100.0)

    for _ in range(3):
        assert [key("m:1")] == silent_brokers(tables, 120.1)
        assert [] == violations(tables)
    assert [key("m:1"), key("s:1")] == silent_brokers(tables, 220.1)


def test_broker_heard_after_it_was_found_is_found_later() -> None:
    """A heartbeat between the look and the removal counts."""
    tables = tables_of(MASTER)
    assert [key("m:1")] == silent_brokers(tables, 121.0)
    hear(tables, key("m:1"), 121.0)

    assert [] == silent_brokers(tables, 241.0)
    assert [key("m:1")] == silent_brokers(tables, 241.1)


def test_expiry_that_became_shorter_counts_at_once() -> None:
    """A broker that turns acting-master mode on asks for 10 s; the deadline of its former 120 s is void."""
    tables = tables_of(MASTER, now=0.0)
    register(tables, replace(MASTER, expiry_seconds=10.0), now=5.0)

    assert [] == silent_brokers(tables, 15.0)
    assert [key("m:1")] == silent_brokers(tables, 15.1)


def test_expiry_that_became_longer_counts_at_once() -> None:
    """And the other way round."""
    tables = tables_of(replace(MASTER, expiry_seconds=10.0), now=0.0)
    register(tables, MASTER, now=5.0)

    assert [] == silent_brokers(tables, 125.0)
    assert [key("m:1")] == silent_brokers(tables, 125.1)


def test_broker_that_came_back_is_found_once() -> None:
    """Gone and back within one moment, it has the same deadline twice."""
    tables = tables_of(MASTER)
    for _ in range(3):
        remove(tables, key("m:1"))
        register(tables, MASTER)

    assert [key("m:1")] == silent_brokers(tables, 120.1)
    assert [key("m:1")] == silent_brokers(tables, 120.1)


def test_broker_that_is_gone_is_not_found() -> None:
    """Its deadline outlives it, and means nothing."""
    tables = tables_of(MASTER, SLAVE)
    remove(tables, key("m:1"))

    assert [key("s:1")] == silent_brokers(tables, 1_000.0)


def test_scan_costs_what_is_due() -> None:
    """A thousand brokers that are all heard regularly: a scan in between looks at none of them."""
    tables = tables_of(*(registration(f"b{number}", 0, f"a{number}:1", body=body()) for number in range(1000)))
    before = list(tables.deadlines)

    assert [] == silent_brokers(tables, 119.0)

    assert before == tables.deadlines


# ---- what leaving changes ----


def test_last_of_a_group_takes_its_topics_along() -> None:
    """unregisterBroker: all routes gone; topics of others stay without it."""
    tables = tables_of(registration("b1", 0, "m:1", "t1", "t2"), registration("b2", 0, "o:1", "t2", "t3"))

    remove(tables, key("m:1"))

    assert {"t2": {"b2": 6}, "t3": {"b2": 6}} == rows(tables)
    assert {"b2": {0: "o:1"}} == addresses(tables)
    assert {"c1": frozenset({"b2"})} == tables.cluster_addr_table


def test_slave_that_leaves_changes_only_the_group() -> None:
    """unRegisterSlaveBroker: id 0 remains, as writable as before."""
    tables = tables_of(MASTER, SLAVE)

    remove(tables, key("s:1"))

    assert {"b1": {0: "m:1"}} == addresses(tables)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)


def test_master_that_leaves_takes_the_write_permission_along() -> None:
    """unRegisterMasterBroker: with an acting master nobody takes writes until the master is back."""
    tables = tables_of(replace(MASTER, body=body("t1", topic("t2", perm=7), topic("t3", perm=4))), SLAVE)

    remove(tables, key("m:1"))
    assert {"t1": {"b1": 4}, "t2": {"b1": 5}, "t3": {"b1": 4}} == rows(tables)
    assert {"b1": {1: "s:1"}} == addresses(tables)

    register(tables, replace(MASTER, body=body("t1", topic("t2", perm=7), topic("t3", perm=4))))
    assert {"t1": {"b1": 6}, "t2": {"b1": 7}, "t3": {"b1": 4}} == rows(tables)


def test_master_without_acting_slaves_leaves_the_permission() -> None:
    """unRegisterMasterBrokerOldVersion: no id 0, perm stays 6."""
    tables = tables_of(replace(MASTER, enable_acting_master=False), replace(SLAVE, enable_acting_master=False))

    remove(tables, key("m:1"))

    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)
    assert {"b1": {1: "s:1"}} == addresses(tables)


def test_only_the_reduced_group_loses_its_write_permission() -> None:
    """pickupPartitionOrderTopicRouteData: with two groups on a topic, the other one stays writable."""
    tables = tables_of(MASTER, SLAVE, registration("b2", 0, "o:1", enable_acting_master=True))

    remove(tables, key("m:1"))

    assert {"t1": {"b1": 4, "b2": 6}, "t2": {"b1": 4, "b2": 6}} == rows(tables)


def test_id_below_zero_that_is_left_keeps_the_write_permission() -> None:
    """As in Java, which asks whether the smallest id is above 0."""
    tables = tables_of(replace(SLAVE, broker_id=-1, enable_acting_master=False), MASTER)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)

    remove(tables, key("m:1"))

    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)


def test_working_it_out_changes_nothing() -> None:
    """Up to the one step in which it is applied the tables are whole."""
    tables = tables_of(MASTER, SLAVE)

    removal = finished(plan_removal(tables, key("m:1"), tables.broker_live_table[key("m:1")], RouteOptions()))

    assert {"t1": None, "t2": None} == dict.fromkeys(removal.changes.rows)
    assert {"b1": {0: "m:1", 1: "s:1"}} == addresses(tables)
    assert {"t1": {"b1": 6}, "t2": {"b1": 6}} == rows(tables)


@pytest.mark.parametrize(("topics", "yields"), [(0, 0), (CHUNK_TOPICS - 1, 0), (3 * CHUNK_TOPICS, 3)])
@pytest.mark.parametrize("has_slave", [False, True], ids=["alone", "with a slave"])
def test_death_of_a_large_broker_lets_others_run(topics: int, yields: int, has_slave: bool) -> None:  # noqa: FBT001
    """After every thousand of its own topics; those of others do not count."""
    names = [f"t{number}" for number in range(topics)]
    tables = tables_of(
        replace(MASTER, body=body(*names)), registration("b2", 0, "o:1", *(f"o{number}" for number in range(5000)))
    )
    if has_slave:
        register(tables, SLAVE)

    work = plan_removal(tables, key("m:1"), tables.broker_live_table[key("m:1")], RouteOptions())
    counted, removal = steps_and_result(work)

    assert yields == counted
    assert sorted(names) == sorted(removal.changes.rows)


# ---- who is told of a new smallest id ----


@pytest.mark.parametrize(
    ("leaves", "acts", "told"),
    [
        ("m:1", True, MinBrokerIdChanged("b1", 1, "s:1", ("s:1", "s:2"), offline_broker_addr="m:1")),
        ("m:1", False, None),
        ("s:1", True, None),
        ("s:2", True, None),
    ],
)
def test_members_are_told_when_the_smallest_id_leaves(
    leaves: str,
    acts: bool,  # noqa: FBT001 - a case
    told: MinBrokerIdChanged | None,
) -> None:
    """All that are left, and only if a slave may act."""
    group = [replace(SLAVE, broker_id=2, broker_addr="s:2"), SLAVE, MASTER]
    tables = tables_of(*(replace(broker, enable_acting_master=acts) for broker in group))

    assert told == remove(tables, key(leaves), NOTIFIES).min_id_changed


def test_nobody_is_told_while_the_setting_is_off() -> None:
    """The default."""
    assert remove(tables_of(MASTER, SLAVE), key("m:1")).min_id_changed is None


def test_nobody_is_left_to_be_told() -> None:
    """The last member has gone."""
    assert remove(tables_of(MASTER), key("m:1"), NOTIFIES).min_id_changed is None


# ---- permissions ----


def test_permissions_change_for_one_broker_only() -> None:
    """Queue numbers and flags stay; rows that would stay as they are, are not touched."""
    tables = tables_of(
        registration("b1", 0, "m:1", "t1", topic("t2", 4, 4, 3)), registration("b2", 0, "o:1", "t1", "t9")
    )
    changes = Changes()

    finished(plan_perms(tables, changes, "b1", lambda perm: perm & ~2))

    assert ["t1"] == list(changes.rows)
    apply(tables, changes)
    assert {"t1": {"b1": 4, "b2": 6}, "t2": {"b1": 4}, "t9": {"b2": 6}} == rows(tables)
    assert [4, 4, 4, 3] == [
        getattr(tables.topic_queue_table["t2"][0], name)
        for name in ("read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag")
    ]
