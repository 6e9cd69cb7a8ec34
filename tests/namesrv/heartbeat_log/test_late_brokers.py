"""Counts of pulls of topics that have a late broker."""

import pytest

from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from tests.support.steps import finished

KEY = BrokerAddrInfo("cluster-1", "10.0.0.1:10911")


def brokers(*, last_update: float, topics: set[str]) -> tuple[RouteTables, LateBrokers]:
    """Tables with one broker, whose expiry is 120 s, and its topics."""
    tables = RouteTables()
    tables.broker_live_table[KEY] = BrokerLiveInfo("broker-a", 0, last_update, 120.0, None, 1, None, 1)
    tables.topics.of_broker["broker-a"] = dict.fromkeys(topics)
    return tables, LateBrokers(tables)


def heartbeats_at(tables: RouteTables, late: LateBrokers, *moments: float) -> None:
    """Record a heartbeat of the broker at each of these moments, and update the late topics after each."""
    for moment in moments:
        tables.broker_live_table[KEY] = tables.broker_live_table[KEY].seen(moment, 1, None)
        finished(late.update(moment))


@pytest.mark.parametrize(
    ("heartbeats", "in_time", "late_at"),
    [
        # without a known interval, one and a half times a quarter of the expiry: 45 s
        ((), 45.0, 45.1),
        # a broker that sends every second is late after 1.5 s
        ((0.0, 1.0, 2.0, 3.0), 4.5, 4.6),
        # a pause of a minute hardly changes the interval: 1 + 0.25 * (2 - 1)
        ((0.0, 1.0, 61.0), 62.8, 62.9),
    ],
    ids=["unknown interval", "known interval", "pause"],
)
def test_broker_is_late_after_one_and_a_half_intervals(
    heartbeats: tuple[float, ...], in_time: float, late_at: float
) -> None:
    """The topics of a broker become late topics after one and a half heartbeat intervals, and no earlier."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    # the fast path keeps a reference to this set
    topics = late.topics
    heartbeats_at(tables, late, *heartbeats)

    finished(late.update(in_time))
    assert topics == set()
    finished(late.update(late_at))
    assert topics == {"T"}


def test_removed_broker_loses_its_interval() -> None:
    """Another process may use the address afterwards, so its interval is unknown."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    heartbeats_at(tables, late, 0.0, 1.0)
    late.left(KEY)

    finished(late.update(45.0))
    assert late.topics == set()


def test_counts_survive_the_next_heartbeat() -> None:
    """Counts stay after the broker's heartbeat until a scan takes them."""
    tables, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls["T"] += 2
    tables.broker_live_table[KEY] = tables.broker_live_table[KEY].seen(51.0, 1, None)
    finished(late.update(52.0))
    assert late.topics == set()
    finished(late.update(130.0))
    late.pulls["T"] += 1

    assert late.take() == [("T", 3)]


def test_counts_of_some_topics_are_taken() -> None:
    """The counts of other topics stay."""
    _, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls.update(T=1, U=2)

    assert late.take({"U", "V"}) == [("U", 2)]
    assert late.take() == [("T", 1)]
    assert late.take() == []
