"""Rules of a group whose master is gone: acting master, write permission, and the view of clients."""

import pytest

from namesrv.routeinfo.acting_master import (
    is_shown_as_it_is,
    loses_write,
    makes_routes,
    registers_without_write,
    shown_to_clients,
)
from namesrv_remoting.bodies.route import BrokerData
from tests.support.route_builders import queue_data


@pytest.mark.parametrize(
    ("broker_id", "group_ids", "enable_acting_master", "expected"),
    [
        (0, {0, 1}, None, True),
        (1, {0, 1}, True, False),
        (1, {1, 2}, True, True),
        (2, {1, 2}, True, False),
        # a 5.x broker without acting masters keeps its topics readable all the same
        (1, {1, 2}, False, True),
        # a broker older than 5.x
        (1, {1, 2}, None, False),
    ],
)
def test_master_or_acting_master_makes_routes(
    broker_id: int, group_ids: set[int], enable_acting_master: bool | None, *, expected: bool
) -> None:
    """The acting master is the instance with the smallest id."""
    assert makes_routes(broker_id, group_ids, enable_acting_master=enable_acting_master) is expected


@pytest.mark.parametrize(
    ("broker_id", "enable_acting_master", "expected"),
    [(0, True, False), (1, True, True), (1, False, False), (1, None, False)],
)
def test_acting_master_registers_without_write(
    broker_id: int, enable_acting_master: bool | None, *, expected: bool
) -> None:
    """A slave of a group with acting masters registers its topics without write permission."""
    assert registers_without_write(broker_id, enable_acting_master=enable_acting_master) is expected


@pytest.mark.parametrize(
    ("remaining_ids", "enable_acting_master", "expected"),
    [({1, 2}, True, True), ({0, 2}, True, False), ({1, 2}, False, False)],
)
def test_group_without_its_master_loses_write(
    remaining_ids: set[int], *, enable_acting_master: bool, expected: bool
) -> None:
    """A group without its master loses the write permission only if its slaves act as masters."""
    assert loses_write(remaining_ids, enable_acting_master=enable_acting_master) is expected


@pytest.mark.parametrize(
    ("addrs", "perm", "enable_acting_master", "shown"),
    [
        ({1: "s:1", 2: "s:2"}, 4, True, {0: "s:1", 2: "s:2"}),
        ({3: "s:3", 2: "s:2"}, 4, True, {3: "s:3", 0: "s:2"}),
        ({1: "s:1", 2: "s:2"}, 6, True, {1: "s:1", 2: "s:2"}),
        ({1: "s:1", 2: "s:2"}, 4, False, {1: "s:1", 2: "s:2"}),
        ({0: "m:1", 1: "s:1"}, 4, True, {0: "m:1", 1: "s:1"}),
    ],
)
def test_clients_see_the_acting_master_as_the_master(
    addrs: dict[int, str], perm: int, shown: dict[int, str], *, enable_acting_master: bool
) -> None:
    """A slave is shown under id 0 only in a group without a master whose queues are read-only."""
    group = BrokerData("c1", "b1", addrs, None, enable_acting_master)

    assert shown_to_clients(group, queue_data("b1", perm=perm), addrs) == BrokerData(
        "c1", "b1", shown, None, enable_acting_master
    )


def test_members_see_the_registered_ids() -> None:
    """The sync topic of a group shows its members under their registered ids."""
    assert [is_shown_as_it_is(topic) for topic in ("rmq_sys_SYNC_BROKER_MEMBER_b1", "orders")] == [True, False]
