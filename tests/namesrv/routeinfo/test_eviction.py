"""Who is silent, what the leaving of a broker costs, and who is told of it."""

import pytest

from namesrv.routeinfo.effects import MinBrokerIdChanged
from namesrv.routeinfo.eviction import plan_removal, silent_brokers
from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.rows import CHUNK_TOPICS
from namesrv.routeinfo.tables import RouteTables
from tests.support.route_builders import key, registration, remove, tables_of
from tests.support.steps import steps_and_result

M, S, O = key("m:1"), key("s:1"), key("o:1")  # noqa: E741 - a broker, as the two others
NOTIFIES = RouteOptions(notify_min_broker_id_changed=True)


def three() -> RouteTables:
    """A master with 120 s, a slave with 10 s and another master with 60 s, all heard at 0."""
    return tables_of(
        registration("b1", 0, "m:1"),
        registration("b1", 1, "s:1", expiry_seconds=10.0),
        registration("b2", 0, "o:1", expiry_seconds=60.0),
    )


@pytest.mark.parametrize(
    ("now", "silent"), [(10.0, []), (10.1, [S]), (60.0, [S]), (60.1, [S, O]), (120.0, [S, O]), (120.1, [S, O, M])]
)
def test_brokers_expire_strictly_after_their_own_expiry_longest_overdue_first(now: float, silent: list[object]) -> None:
    """Looking changes nothing: whoever decides not to evict finds them again."""
    tables = three()

    assert silent == [*dict(silent_brokers(tables, now))] == [*dict(silent_brokers(tables, now))]
    tables.set_live(S, tables.broker_live_table[S].heard(now, 1, None))
    assert [one for one in silent if one != S] == [*dict(silent_brokers(tables, now))]
    assert [one for one in [*dict(silent_brokers(tables, now + 10.1))] if one == S] == [S]


@pytest.mark.parametrize(("topics", "yields"), [(2, 0), (CHUNK_TOPICS - 1, 0), (3 * CHUNK_TOPICS, 3)])
@pytest.mark.parametrize("acts", [None, True], ids=["alone", "with a slave"])
def test_death_of_a_large_broker_lets_others_run(topics: int, yields: int, acts: bool | None) -> None:
    """After every thousand topics; until it is applied, nothing has changed."""
    names = [f"t{number}" for number in range(topics)]
    master = registration("b1", 0, "m:1", *names, enable_acting_master=acts)
    slave = registration("b1", 1, "s:1", enable_acting_master=True)
    tables = tables_of(master, *([slave] if acts else []))
    before = repr(tables)

    steps, removal = steps_and_result(plan_removal(tables, M, tables.broker_live_table[M], RouteOptions()))

    assert (yields, topics) == (steps, len(removal.rows))
    assert before == repr(tables)


@pytest.mark.parametrize(
    ("ids", "acts", "options", "told"),
    [
        ([0, 1, 2], True, NOTIFIES, MinBrokerIdChanged("b1", 1, "x:1", ("x:1", "x:2"), offline_broker_addr="x:0")),
        ([-1, 0], True, NOTIFIES, MinBrokerIdChanged("b1", 0, "x:0", ("x:0",), offline_broker_addr="x:-1")),
        ([0, 1], True, RouteOptions(), None),
        ([0, 1], False, NOTIFIES, None),
        ([0], True, NOTIFIES, None),
    ],
    ids=["the master", "an id below 0", "setting off", "nobody may act", "nobody is left"],
)
def test_members_are_told_when_the_smallest_id_leaves(
    ids: list[int], acts: bool, options: RouteOptions, told: MinBrokerIdChanged | None
) -> None:
    """Who is left, in the order of the ids; the leaving of any other says nothing."""
    brokers = [registration("b1", number, f"x:{number}", enable_acting_master=acts) for number in ids]

    assert told == remove(tables_of(*brokers), key(f"x:{ids[0]}"), options).notice
    if len(ids) > 1:
        assert remove(tables_of(*brokers), key(f"x:{ids[-1]}"), options).notice is None
