"""Which silences are a mass silence, how long its brokers are held, and what becomes of them."""

from collections.abc import Collection

import pytest

from namesrv.routeinfo.eviction import silent_brokers
from namesrv.routeinfo.holding import HoldPolicy, Holds
from namesrv.routeinfo.records import BrokerAddrInfo, EvictionsHeld, HoldsEnded
from namesrv.routeinfo.tables import RouteTables
from tests.support.route_builders import key, registration, tables_of

POLICY = HoldPolicy(hold_seconds=300.0)


class Scans:
    """Ten brokers with 120 s each, and the scans that look at them."""

    def __init__(self, policy: HoldPolicy = POLICY, heard: Collection[float] = ()) -> None:
        self.holds = Holds(policy)
        self.keys = [key(f"b{number}:1") for number in range(10)]
        # registered over connections of their own
        self.tables: RouteTables = tables_of(
            *(registration(f"b{number}", 0, f"b{number}:1", connection_id=number + 1) for number in range(10))
        )
        self.closed: set[int] = set()
        for each, at in zip(self.keys, heard, strict=False):
            self.hear(each, at)

    def hear(self, broker: BrokerAddrInfo, now: float) -> None:
        live = self.tables.broker_live_table[broker]
        self.tables.set_live(broker, live.heard(now, live.connection_id, None))

    def scan(self, now: float) -> tuple[list[int], list[EvictionsHeld | HoldsEnded]]:
        """The numbers of the brokers that are evicted now, and what is told."""
        table = self.tables.broker_live_table
        due = silent_brokers(self.tables, now)
        found, told = self.holds.sort_out(table, due, now, 1, lambda number: number not in self.closed)
        for broker, _ in found:
            del table[broker]
            self.holds.end(broker, "evicted")
        return [self.keys.index(broker) for broker, _ in found], told


@pytest.mark.parametrize(
    ("heard", "policy", "held"),
    [
        # of ten: one is due, two more are silent for 90 s and a bit
        ([0, 31, 31, *[100] * 7], POLICY, True),
        ([0, 31.1, 31, *[100] * 7], POLICY, False),
        ([0, 0, 0, *[100] * 7], HoldPolicy(), False),
        ([0, 0, 0, *[100] * 7], HoldPolicy(hold_seconds=300.0, brokers=4), False),
        ([0, 0, 0, *[100] * 7], HoldPolicy(hold_seconds=300.0, percent=30.0), True),
        ([0, 0, 0, *[100] * 7], HoldPolicy(hold_seconds=300.0, percent=31.0), False),
    ],
    ids=["in three scans", "one is heard yet", "off", "too few", "the share", "less than the share"],
)
def test_many_that_fall_silent_within_one_heartbeat_are_held(
    heard: list[float], policy: HoldPolicy, held: bool
) -> None:
    """The first of them is due, and it is known already that others will be."""
    scans = Scans(policy, heard)

    evicted, told = scans.scan(121.05)

    assert (not held) == bool(evicted) == (not told)
    assert held == bool(scans.holds.current(scans.tables.broker_live_table))


def test_held_brokers_leave_in_turn_when_the_hold_is_over() -> None:
    """Two per scan; strictly after what each may be silent for."""
    scans = Scans(HoldPolicy(hold_seconds=300.0, evictions_per_scan=2), heard=[*[0.0] * 5, *[1000.0] * 5])

    assert ([], []) == scans.scan(120.0)
    evicted, (told,) = scans.scan(120.1)
    assert ([], 5, 5, 10) == (evicted, len(told.held), told.silent, told.brokers)  # type: ignore[union-attr]  # is one
    assert 5 == scans.holds.current(scans.tables.broker_live_table)
    assert ([], []) == scans.scan(420.0)
    assert ([0, 1], []) == scans.scan(420.1)
    assert ([2, 3], []) == scans.scan(430.1)
    assert ([4], []) == scans.scan(440.1)
    assert ([], [HoldsEnded(heard=0, left=0, evicted=5)]) == scans.scan(450.1)
    assert {"heard": 0, "left": 0, "evicted": 5} == scans.holds.outcomes


def test_who_is_heard_again_is_held_no_longer() -> None:
    """At once, whoever asks; and with a later silence of its own it is like anybody."""
    scans = Scans(heard=[*[0.0] * 3, *[1000.0] * 7])
    scans.scan(121.0)
    table, (first, second, third) = scans.tables.broker_live_table, scans.keys[:3]
    scans.hear(first, 130.0)
    del table[second]

    assert [None, 300.0] == [scans.holds.seconds_of(each, table[each]) for each in (first, third)]
    assert 1 == scans.holds.current(table)
    assert ([], []) == scans.scan(131.0)
    assert {"heard": 1, "left": 1, "evicted": 0} == scans.holds.outcomes
    # too few are silent by now: what was promised holds, but not for others
    assert ([0], []) == scans.scan(251.0)
    scans.hear(third, 260.0)
    assert ([], [HoldsEnded(heard=2, left=1, evicted=0)]) == scans.scan(261.0)


def test_closed_connection_is_no_silence() -> None:
    """Such a broker neither makes a mass silence nor is held by one."""
    scans = Scans(heard=[*[0.0] * 4, *[1000.0] * 6])
    scans.closed = {1}
    assert [0] == scans.scan(121.0)[0]
    scans = Scans(heard=[*[0.0] * 3, *[1000.0] * 7])
    scans.closed = {1}
    assert [0, 1, 2] == scans.scan(121.0)[0]
