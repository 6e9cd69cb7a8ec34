"""Expiry of brokers, the cost of their removal, and the notice to the rest of the group."""

import pytest

from namesrv.routeinfo.eviction import plan_removal, silent_brokers
from namesrv.routeinfo.tables.effects import MinBrokerIdChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, RouteOptions
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS
from tests.support.route_builders import key, registration, remove, tables_of
from tests.support.steps import steps_and_result

M, S, O = key("m:1"), key("s:1"), key("o:1")  # noqa: E741 - a broker, as the two others
NOTIFIES = RouteOptions(notify_min_broker_id_changed=True)


def three() -> RouteTables:
    """A master with an expiry of 120 s, a slave with 10 s and another master with 60 s, all last seen at 0."""
    return tables_of(
        registration("b1", 0, "m:1"),
        registration("b1", 1, "s:1", expiry_seconds=10.0),
        registration("b2", 0, "o:1", expiry_seconds=60.0),
    )


@pytest.mark.parametrize(
    ("now", "silent"), [(10.0, []), (10.1, [S]), (60.0, [S]), (60.1, [S, O]), (120.0, [S, O]), (120.1, [S, O, M])]
)
def test_silent_brokers_are_overdue_ones_longest_first(now: float, silent: list[object]) -> None:
    """A broker expires strictly after its own expiry; finding silent brokers changes nothing."""
    tables = three()

    def found(at: float) -> dict[BrokerAddrInfo, float]:
        return steps_and_result(silent_brokers(tables, at))[1]

    assert [*found(now)] == silent == [*found(now)]
    tables.set_live(S, tables.broker_live_table[S].seen(now, 1, None))
    assert [*found(now)] == [one for one in silent if one != S]
    assert found(now + 10.1)[S] == now


@pytest.mark.parametrize(("topics", "yields"), [(2, 0), (CHUNK_TOPICS - 1, 0), (3 * CHUNK_TOPICS, 3)])
@pytest.mark.parametrize("acts", [None, True], ids=["alone", "with a slave"])
def test_removal_of_a_large_broker_is_planned_in_chunks(topics: int, yields: int, acts: bool | None) -> None:
    """The plan yields to other tasks after every chunk, and leaves the tables unchanged."""
    names = [f"t{number}" for number in range(topics)]
    master = registration("b1", 0, "m:1", *names, enable_acting_master=acts)
    slave = registration("b1", 1, "s:1", enable_acting_master=True)
    tables = tables_of(master, *([slave] if acts else []))
    before = repr(tables)

    steps, removal = steps_and_result(plan_removal(tables, M, tables.broker_live_table[M], RouteOptions()))

    assert (steps, len(removal.rows)) == (yields, topics)
    assert repr(tables) == before


@pytest.mark.parametrize(
    ("ids", "acts", "options", "notice"),
    [
        ([0, 1, 2], True, NOTIFIES, MinBrokerIdChanged("b1", 1, "x:1", ("x:1", "x:2"), offline_broker_addr="x:0")),
        ([-1, 0], True, NOTIFIES, MinBrokerIdChanged("b1", 0, "x:0", ("x:0",), offline_broker_addr="x:-1")),
        ([0, 1], True, RouteOptions(), None),
        ([0, 1], False, NOTIFIES, None),
        ([0], True, NOTIFIES, None),
    ],
    ids=["master", "id below 0", "setting off", "no acting master", "empty group"],
)
def test_members_are_notified_when_the_smallest_id_leaves(
    ids: list[int], acts: bool, options: RouteOptions, notice: MinBrokerIdChanged | None
) -> None:
    """The notice goes to the remaining members in the order of their ids; other removals cause none."""
    brokers = [registration("b1", number, f"x:{number}", enable_acting_master=acts) for number in ids]

    assert remove(tables_of(*brokers), key(f"x:{ids[0]}"), options).notice == notice
    if len(ids) > 1:
        assert remove(tables_of(*brokers), key(f"x:{ids[-1]}"), options).notice is None
