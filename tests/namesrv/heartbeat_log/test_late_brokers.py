"""Pulls of topics that have a late broker."""

import pytest

from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables import RouteTables
from tests.support.steps import finished

KEY = BrokerAddrInfo("cluster-1", "10.0.0.1:10911")


def brokers(*, last_update: float, topics: set[str]) -> tuple[RouteTables, LateBrokers]:
    """One broker with topics, which may be silent for 120 s."""
    tables = RouteTables()
    tables.broker_live_table[KEY] = BrokerLiveInfo("broker-a", 0, last_update, 120.0, None, 1, None, 1)
    tables.topics_of_broker["broker-a"] = dict.fromkeys(topics)
    return tables, LateBrokers(tables)


def beats(tables: RouteTables, late: LateBrokers, *moments: float) -> None:
    """The broker is heard at these moments, and we look right after each."""
    for moment in moments:
        tables.broker_live_table[KEY] = tables.broker_live_table[KEY].heard(moment, 1, None)
        finished(late.update(moment))


@pytest.mark.parametrize(
    ("heard", "in_time", "late_at"),
    [
        # four heartbeats fit into an expiry; one and a half of these periods are 45 s
        ((), 45.0, 45.1),
        # one that sends every second is late after one and a half
        ((0.0, 1.0, 2.0, 3.0), 4.5, 4.6),
        # one that was frozen for a minute is still one that sends every second: 1 + 0.25 * (2 - 1)
        ((0.0, 1.0, 61.0), 62.8, 62.9),
    ],
    ids=["no period shown", "its own period", "a silence is no period"],
)
def test_a_broker_is_late_after_one_and_a_half_periods(
    heard: tuple[float, ...], in_time: float, late_at: float
) -> None:
    """And no earlier."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    # the fast lane looks into the same object all the time
    topics = late.topics
    beats(tables, late, *heard)

    finished(late.update(in_time))
    assert set() == topics
    finished(late.update(late_at))
    assert {"T"} == topics


def test_a_broker_that_left_begins_anew() -> None:
    """Another process may be at its address next time."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    beats(tables, late, 0.0, 1.0)
    late.left(KEY)

    finished(late.update(45.0))
    assert set() == late.topics


def test_counts_stay_when_the_broker_is_back() -> None:
    """Until they are taken, at the next scan."""
    tables, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls["T"] += 2
    tables.broker_live_table[KEY] = tables.broker_live_table[KEY].heard(51.0, 1, None)
    finished(late.update(52.0))
    assert set() == late.topics
    finished(late.update(130.0))
    late.pulls["T"] += 1

    assert late.take() == [("T", 3)]


def test_counts_of_some_topics() -> None:
    """The others' stay."""
    _, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls.update(T=1, U=2)

    assert late.take({"U", "V"}) == [("U", 2)]
    assert late.take() == [("T", 1)]
    assert late.take() == []
