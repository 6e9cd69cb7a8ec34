"""Pulls of topics that have a late broker."""

from namesrv.heartbeat_log.late_brokers import LateBrokers
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables import RouteTables
from tests.support.steps import finished

KEY = BrokerAddrInfo("cluster-1", "10.0.0.1:10911")


def brokers(*, last_update: float, topics: set[str]) -> tuple[RouteTables, LateBrokers]:
    """One broker with topics, which may be silent for 120 s."""
    tables = RouteTables()
    tables.broker_live_table[KEY] = BrokerLiveInfo("broker-a", 0, last_update, 120.0, None, 1, None, 1)
    tables.topics_of_broker["broker-a"] = topics
    return tables, LateBrokers(tables)


def test_a_broker_that_has_shown_no_period_is_late_after_three_eighths_of_its_expiry() -> None:
    """Four heartbeats fit into an expiry; one and a half of these periods are 45 s."""
    _, late = brokers(last_update=0.0, topics={"T"})
    # the fast lane looks into the same object all the time
    topics = late.topics

    finished(late.update(45.0))
    assert set() == topics
    finished(late.update(45.1))
    assert {"T"} == topics


def beats(tables: RouteTables, late: LateBrokers, *moments: float) -> None:
    """The broker is heard at these moments, and we look right after each."""
    for moment in moments:
        tables.broker_live_table[KEY] = tables.broker_live_table[KEY].heard(moment, 1, None)
        finished(late.update(moment))


def test_the_period_is_what_the_broker_shows() -> None:
    """One that sends every second is late after one and a half."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    beats(tables, late, 0.0, 1.0, 2.0, 3.0)

    finished(late.update(4.5))
    assert set() == late.topics
    finished(late.update(4.6))
    assert {"T"} == late.topics


def test_a_silence_is_no_period() -> None:
    """A broker that was frozen for a minute is still one that sends every second: 1 + 0.25 * (2 - 1)."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    beats(tables, late, 0.0, 1.0, 61.0)

    finished(late.update(62.8))
    assert set() == late.topics
    finished(late.update(62.9))
    assert {"T"} == late.topics


def test_a_broker_that_left_begins_anew() -> None:
    """Another process may be at its address next time."""
    tables, late = brokers(last_update=0.0, topics={"T"})
    beats(tables, late, 0.0, 1.0)
    late.left(KEY)

    finished(late.update(45.0))
    assert set() == late.topics


def test_counts_begin_anew_when_they_are_taken() -> None:
    """Each pull is told once."""
    _, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls["T"] += 2

    assert [("T", 2)] == late.take()
    assert [] == late.take()


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

    assert [("T", 3)] == late.take()


def test_counts_of_some_topics() -> None:
    """The others' stay."""
    _, late = brokers(last_update=0.0, topics={"T", "U"})
    finished(late.update(50.0))
    late.pulls.update(T=1, U=2)

    assert [("U", 2)] == late.take({"U", "V"})
    assert [("T", 1)] == late.take()
