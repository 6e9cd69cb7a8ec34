"""Counters of brokers' lives."""

from typing import Any

import pytest

from namesrv.counters import Counters
from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Effect,
    Evicted,
    Fenced,
    Registered,
    RouteChanged,
    Unregistered,
)

KEY = BrokerAddrInfo("cluster-1", "10.0.0.1:10911")
LIVE = BrokerLiveInfo("broker-a", 0, 0.0, 120.0, None, 1, None, 1)


@pytest.mark.parametrize(("late", "bucket"), [(0.05, 1), (1.0, 3), (60.0, 9), (970.0, 12)])
def test_late_heartbeats_are_told_apart(late: float, bucket: int) -> None:
    """Those that came in time are all others."""
    counters = Counters()

    counters.late_heartbeats.observe(late)

    lateness = counters.lateness(heartbeats=4)
    assert {0: 3, bucket: 1} == {number: count for number, count in enumerate(lateness.counts) if count}
    assert (4, late) == (lateness.count, lateness.sum)


def test_registration_that_renews_another_is_a_sign_of_life() -> None:
    """A first one is not: there is nothing before it to be late after."""
    counters = Counters()

    counters(Registered(KEY, LIVE, "full", 2, is_new=True, silent_seconds=0.0))
    assert 0 == counters.renewals.count
    counters(Registered(KEY, LIVE, "unchanged", 2, is_new=False, silent_seconds=30.0))
    counters(Registered(KEY, LIVE, "unchanged", 2, is_new=False, silent_seconds=35.0))

    assert (2, 5.0) == (counters.renewals.count, counters.renewals.sum)
    assert [2, 3] == [counters.lateness(heartbeats).count for heartbeats in (0, 1)]


@pytest.mark.parametrize("reason", ["silent", "disconnected", "unregistered", "superseded"])
def test_removals_are_counted_by_reason(reason: Any) -> None:
    """With the time since the last sign of life; a fenced one apart."""
    counters = Counters()

    counters(Evicted(KEY, LIVE, reason, 124.0))
    counters(Fenced(KEY, LIVE, reason))
    counters(Fenced(KEY, LIVE, reason))

    assert {reason: 1} == {name: found.count for name, found in counters.staleness.items() if found.count}
    assert 124.0 == counters.staleness[reason].sum
    assert {reason: 2} == counters.fenced


@pytest.mark.parametrize("effect", [RouteChanged(frozenset({"T"}), 1), Unregistered(KEY, LIVE)])
def test_other_effects_count_for_nothing(effect: Effect) -> None:
    """What follows from them is counted elsewhere."""
    counters = Counters()

    counters(effect)

    assert "<Counters [0 late | 0 evicted | 0 fenced]>" == repr(counters)


def test_answers_are_counted_by_class() -> None:
    """Each class has a distribution of its own."""
    counters = Counters()

    counters.request_answered("broker", 0.002)
    counters.request_answered("broker", 0.004)
    counters.request_answered("admin", 0.5)

    assert {"broker": 2, "admin": 1} == {kind: histogram.count for kind, histogram in counters.requests.items()}
