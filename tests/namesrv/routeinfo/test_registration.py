"""Refusals and their remarks, notices of a smaller id, and chunks of large registrations.

The state machine checks the tables after registrations; these are the facts that it does not see.
"""

from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.checks import check_topics
from namesrv.routeinfo.registration import plan_registration
from namesrv.routeinfo.rules import TableQuotas, TakeoverPolicy
from namesrv.routeinfo.shares import over_quota
from namesrv.routeinfo.tables.connections import OtherConnection
from namesrv.routeinfo.tables.effects import MinBrokerIdChanged, OverQuota
from namesrv.routeinfo.tables.records import Registration, RouteOptions
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS
from namesrv.routeinfo.takeovers import replaced_by, takeover_by
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.codes import STALE_FIELD
from namesrv_remoting.errors import BadRequestError, SystemError_
from namesrv_remoting.requests import AccessClass
from tests.support.route_builders import (
    ROOMY,
    addresses,
    body,
    check,
    register,
    registration,
    rows,
    rules,
    tables_of,
    topic,
)
from tests.support.route_model import facts_of
from tests.support.steps import finished, steps_and_result

MASTER = registration("b1", 0, "m:1", ha_server_addr="m:2", enable_acting_master=True)
SLAVE = registration("b1", 1, "s:1", ha_server_addr="s:2", enable_acting_master=True)
MANY = [f"t{number}" for number in range(3 * CHUNK_TOPICS)]


def native(*topics: Any, kind: Any = "full", **fields: Any) -> Registration:
    """A native registration of b1's master."""
    return registration("b1", 0, "m:1", *topics, **{"is_native": True, "kind": kind, "agent_id": "agent", **fields})


def from_another_address(**fields: Any) -> Registration:
    """A registration of b1's master from another address."""
    return replace(MASTER, broker_addr="n:1", body=body("t1", "t2", **fields))


@pytest.mark.parametrize(
    ("known", "refused", "remark"),
    [
        (
            replace(MASTER, body=body("t1", "t2", state_version=3)),
            from_another_address(state_version=2),
            "field stateVersion: 2 is lower than 3 of m:1, which holds id 0 of b1",
        ),
        (
            replace(MASTER, body=body("t1", "t2", state_version=1)),
            from_another_address(data_version=None),
            "field stateVersion: 0 is lower than 1 of m:1, which holds id 0 of b1",
        ),
        # the registration could be an increment that overtook the full table, also in a known group
        (MASTER, replace(SLAVE, body=body("t1")), "register broker failed"),
        # the same for a broker that changes its id
        (MASTER, replace(MASTER, broker_id=1, body=body("t1")), "register broker failed"),
        (
            native("t2", registration_seq=5),
            native("t1", registration_seq=4),
            "field registrationSeq: 4 is older than the registered 5",
        ),
    ],
)
def test_refusals(known: Registration, refused: Registration, remark: str) -> None:
    """A refusal has a remark and changes nothing; tests/namesrv/processors has further ones."""
    tables = tables_of(known)
    before = facts_of(tables)

    with pytest.raises((BadRequestError, SystemError_), match=f"^{remark}$") as caught:
        check(tables, refused, rules())

    # as in Java, where the response has a header class
    assert caught.value.ext_fields == ({STALE_FIELD: "true"} if refused.is_native else {})
    assert facts_of(tables) == before


def test_rows_share_the_string_of_the_broker_name() -> None:
    """All rows of a broker share one string for its name, although each registration decodes another one."""
    tables = tables_of(MASTER)
    for changed in ("t1", "t3"):
        name = MASTER.broker_name.encode().decode()
        register(tables, registration(name, 0, "m:1", topic(changed, 4), is_native=True, kind="delta"))

    names = [queues.broker_name for row in tables.topic_queue_table.values() for queues in row.queues]
    assert len(names) == 3
    assert {id(tables.broker_addr_table["b1"].broker_name)} == {*map(id, names)}


@pytest.mark.parametrize(("enable_acting_master", "perm"), [(True, 4), (False, 6)])
def test_group_loses_write_when_its_master_becomes_a_slave(*, enable_acting_master: bool, perm: int) -> None:
    """The prime slave acts as master at once: an agent's heartbeats would not register its topics anew."""
    master, slave = (replace(each, enable_acting_master=enable_acting_master) for each in (MASTER, SLAVE))
    tables = tables_of(master, slave)

    register(tables, replace(master, broker_id=2))

    assert addresses(tables) == {"b1": {1: "s:1", 2: "m:1"}}
    assert rows(tables) == {"t1": {"b1": perm}, "t2": {"b1": perm}}


FORGED = replace(MASTER, body=body("t1", "t2", state_version=2**62), account="team-a")


@pytest.mark.parametrize(
    ("account", "open_connections", "others", "is_refused"),
    [
        ("team-a", {1}, {}, True),
        # the holder's connection has ended
        ("team-a", set(), {}, False),
        ("team-b", {1}, {}, False),
        # another open connection has registered the holder, or has only sent its heartbeats
        ("team-a", {1, 5}, {5: OtherConnection(registered=True, last_seen=0.0)}, False),
        ("team-a", {1, 5}, {5: OtherConnection(registered=False, last_seen=0.0)}, True),
        ("team-a", {1}, {5: OtherConnection(registered=True, last_seen=0.0)}, True),
    ],
    ids=["own", "closed", "other account", "contested", "heartbeats", "contested once"],
)
def test_state_version_counts_on_the_holders_own_connection(
    account: str, open_connections: set[int], others: dict[int, OtherConnection], is_refused: bool
) -> None:
    """A state version protects the id only while its holder's connection, the only one, is open."""
    tables = tables_of(FORGED)
    for number, other in others.items():
        tables.connections.note_other(MASTER.key, number, other)
    successor = replace(from_another_address(state_version=2), account=account)

    refused = []
    try:
        check(tables, successor, rules(is_connected=open_connections.__contains__))
    except BadRequestError as error:
        refused.append(error.remark)

    remark = f"field stateVersion: 2 is lower than {2**62} of m:1, which holds id 0 of b1"
    assert refused == ([remark] if is_refused else [])


@pytest.mark.parametrize(
    ("wanted", "excess"),
    [
        (replace(MASTER, account="a"), None),
        (replace(MASTER, account="a", broker_addr="n:1"), None),
        (replace(MASTER, account="a", cluster_name="c2"), None),
        (
            replace(MASTER, account="a", broker_addr="n:1", broker_id=2),
            ("brokers_per_cluster", "2 brokers of cluster c1, limit 1"),
        ),
        (replace(MASTER, account="b", broker_addr="n:1"), ("brokers_per_account", "2 brokers of account b, limit 1")),
    ],
    ids=["again", "another address", "another cluster", "another id", "another account"],
)
def test_replaced_broker_does_not_count_for_the_quota(wanted: Registration, excess: tuple[str, str] | None) -> None:
    """A broker may move to another address or cluster within a full quota; in another account it is one more."""
    tables = tables_of(
        replace(MASTER, account="a"),
        registration("b2", 0, "o:1", account="b", cluster_name="c3"),
    )

    one_broker = rules(quotas=TableQuotas("enforce", brokers=1))
    found = finished(over_quota(tables, wanted, one_broker, replaced_by(tables, wanted)))

    expected = None if excess is None else OverQuota(AccessClass.BROKER_CONTROL, *excess, is_refused=True)
    assert found == expected


def test_full_registration_drops_a_mapping_that_it_no_longer_has() -> None:
    """The topic stays, and is no static topic any more."""
    mapping = TopicQueueMappingInfo(curr_id_map={0: 0})
    tables = tables_of(native(body=body("t1", "t2", mappings={"t1": mapping})))
    assert tables.topics.mapped_count == 1

    register(tables, native("t1", "t2"))

    assert (tables.topics.mapped_count, sorted(tables.topic_queue_table)) == (0, ["t1", "t2"])


def test_quota_counts_every_broker_of_the_owner() -> None:
    """A broker beyond the quota is refused with the number of all brokers of its cluster."""
    tables = tables_of(*(registration(f"b{number}", 0, f"m:{number}") for number in (1, 2, 3)))
    wanted = registration("b4", 0, "m:4")

    three = rules(quotas=TableQuotas("enforce", brokers=3))
    found = finished(over_quota(tables, wanted, three, replaced_by(tables, wanted)))

    message = "4 brokers of cluster c1, limit 3"
    assert found == OverQuota(AccessClass.BROKER_CONTROL, "brokers_per_cluster", message, is_refused=True)


@pytest.mark.parametrize(("open_connections", "is_attempted"), [({1, 2}, True), ({2}, False)])
def test_only_a_broker_on_an_open_connection_is_taken_over(open_connections: set[int], *, is_attempted: bool) -> None:
    """The place of a broker whose connection has closed is free."""
    tables = tables_of(MASTER)
    refusing = rules(policy=TakeoverPolicy("refuse"), is_connected=open_connections.__contains__)

    found = takeover_by(tables, replace(from_another_address(), connection_id=2), refusing)

    assert (found is not None) == is_attempted


def test_limits_count_each_topic_once() -> None:
    """A repeated topic counts once, a dropped one does not count, unless another broker has it."""
    tables = tables_of(native("t1", "t2"), registration("b2", 0, "o:1", "t2", "t3"))

    def check_named(*named: str, dropped: frozenset[str] = frozenset(), **limits: int) -> None:
        work = check_topics(tables, replace(ROOMY, **limits), "b1", named, len(named), steps_to(set(dropped)))
        finished(work)

    def steps_to(found: set[str]) -> Any:
        yield
        return found

    check_named("t1", "t2", "t4", "t4", max_topics=4, max_routes=5, max_topics_per_broker=3)
    check_named("t4", dropped=frozenset({"t1"}), max_topics=3, max_routes=4, max_topics_per_broker=2)
    check_named("t2", dropped=frozenset({"t2"}), max_topics=2)
    # what is there stays under limits that were lowered
    check_named("t1", "t2", max_topics=1, max_routes=1, max_topics_per_broker=1)
    check_named("t3", dropped=frozenset({"t2"}), max_topics=1, max_routes=1, max_topics_per_broker=1)
    for limits, remark in (
        ({"max_topics": 3}, "4 topics, limit 3"),
        ({"max_routes": 4}, "5 routes, limit 4"),
        ({"max_topics_per_broker": 2}, "3 topics per broker, limit 2"),
    ):
        with pytest.raises(BadRequestError, match=f"^{remark}$"):
            check_named("t4", dropped=frozenset(), **limits)


@pytest.mark.parametrize(
    ("group", "newcomer", "recipients"),
    [
        # no notice to the first member of a group, unless its id is below 0
        ([], (0, "m:1"), None),
        ([], (1, "m:1"), None),
        ([], (-1, "m:1"), ("m:1",)),
        ([(1, "s:1"), (2, "s:2")], (0, "m:1"), ("s:1", "s:2")),
        ([(0, "m:1")], (1, "s:1"), None),
        ([(2, "s:2")], (1, "s:1"), ("s:2",)),
        # a broker that is alone in its group and changes its id gets the notice itself
        ([(1, "m:1")], (0, "m:1"), ("m:1",)),
    ],
)
def test_members_are_notified_of_a_smaller_id(
    group: list[tuple[int, str]], newcomer: tuple[int, str], recipients: tuple[str, ...] | None
) -> None:
    """The notice goes to all members but the newcomer, with or without acting masters, if the setting is on."""
    others = [registration("b1", number, addr) for number, addr in group]
    asked = registration("b1", *newcomer, ha_server_addr="ha:1")

    ((off, _),) = register(tables_of(*others), asked)
    ((on, _),) = register(tables_of(*others), asked, options=RouteOptions(notify_min_broker_id_changed=True))

    notice = recipients and MinBrokerIdChanged("b1", *newcomer, recipients, ha_broker_addr="ha:1")
    assert (off.notice, on.notice) == (None, notice)


@pytest.mark.parametrize(
    ("known", "asked", "yields"),
    [
        ((), registration("b1", 0, "m:1", body=body(*MANY[: CHUNK_TOPICS - 1])), 0),
        ((), registration("b1", 0, "m:1", *MANY), 3),
        # named topics, new mappings, and mappings that may be dropped
        ((), native(body=body(*MANY, mappings=dict.fromkeys(MANY, TopicQueueMappingInfo("t")))), 9),
        # named topics, dropped ones, and the rows that they change
        ((native(*MANY),), native("t0"), 5),
    ],
    ids=["few", "many", "mappings", "dropped"],
)
def test_large_registration_is_planned_in_chunks(known: tuple[Registration], asked: Registration, yields: int) -> None:
    """The plan yields to other tasks after every thousand topics, about a millisecond."""
    tables = tables_of(*known)
    before = repr(tables)

    assert steps_and_result(plan_registration(tables, asked, RouteOptions(), 0.0, 1))[0] == yields
    assert repr(tables) == before


def test_addresses_are_ordered_by_id() -> None:
    """Addresses of a group are in the order of ids, however the group grew."""
    tables = tables_of(registration("b1", 2, "t:1"), SLAVE, MASTER)

    assert list(tables.broker_addr_table["b1"].broker_addrs) == [0, 1, 2]
