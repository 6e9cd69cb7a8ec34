"""Brokers that have lost their connection a moment ago."""

import pytest

from namesrv.routeinfo.rules import TableLimits
from namesrv.routeinfo.tables.effects import Effect, Evicted, Registered
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, Reason
from namesrv.state.expected_back import BrokersExpectedBack
from tests.support.fake_clock import FakeClock

LIMITS = TableLimits(max_brokers=2, max_topics=1, max_routes=1, max_topics_per_broker=1)


def evicted(name: str, reason: Reason = "disconnected") -> Evicted:
    """The eviction of a broker."""
    live = BrokerLiveInfo(name, 0, 0.0, 120.0, None, 1, None, 1)
    return Evicted(BrokerAddrInfo("c", "10.0.0.1:10911"), live, reason, 1.0)


def registered(name: str) -> Registered:
    """The registration of a new broker."""
    broker = evicted(name)
    return Registered(broker.key, broker.live, "full", 1, is_new=True, silent_seconds=0.0)


@pytest.mark.parametrize("reason", ["silent", "unregistered", "superseded"])
def test_only_disconnected_brokers_are_expected_back(reason: Reason) -> None:
    """A broker that left for any other reason is not expected, also if it was disconnected before."""
    brokers = BrokersExpectedBack(FakeClock().monotonic, LIMITS, ())
    for effect in (evicted("a"), evicted("b", reason), evicted("a", reason), evicted("c")):
        brokers.observe(effect)

    assert [broker.broker_name for broker in brokers.expected()] == ["c"]


async def test_registration_or_35_seconds_end_the_wait() -> None:
    """A broker that is disconnected again is expected back for another 35 s."""
    clock = FakeClock()
    brokers = BrokersExpectedBack(clock.monotonic, LIMITS, ())
    brokers.observe(evicted("a"))
    brokers.observe(evicted("b"))
    await clock.advance(34.9)
    brokers.observe(registered("a"))
    brokers.observe(evicted("a"))
    assert [broker.broker_name for broker in brokers.expected()] == ["b", "a"]

    await clock.advance(0.1)
    assert [broker.broker_name for broker in brokers.expected()] == ["a"]


def test_expected_brokers_are_bounded() -> None:
    """Peers that register ever new names and disconnect displace the oldest: no more than the tables may have."""
    brokers = BrokersExpectedBack(FakeClock().monotonic, LIMITS, ())
    for name in "abc":
        brokers.observe(evicted(name))

    assert [broker.broker_name for broker in brokers.expected()] == ["b", "c"]


async def test_server_that_lost_most_brokers_may_lack_live_ones() -> None:
    """It does so until all of them are back, or for 35 s; one broker that dies among many says nothing."""
    clock, live = FakeClock(), set("abcd")
    brokers = BrokersExpectedBack(clock.monotonic, LIMITS, live)

    def after(*, lost: str = "", back: str = "") -> bool:
        for name in lost:
            live.remove(name)
            brokers.observe(evicted(name))
        for name in back:
            live.add(name)
            brokers.observe(registered(name))
        return brokers.may_lack_live_brokers

    assert not after(lost="a")
    assert after(lost="b")
    assert after(back="a")
    assert not after(back="b")
    assert not after(lost="a")
    assert after(lost="bc")
    await clock.advance(34.9)
    assert after()
    await clock.advance(0.1)
    assert not after()


def test_server_whose_last_broker_became_silent_may_lack_live_ones() -> None:
    """A network that drops packets closes no connection: brokers may be missing until 35 s after the first is back."""
    clock, live = FakeClock(), set("b")
    brokers = BrokersExpectedBack(clock.monotonic, LIMITS, live)

    def after(effect: Effect, seconds: float) -> bool:
        brokers.observe(effect)
        clock.stall(seconds)
        return brokers.may_lack_live_brokers

    assert not after(evicted("a", "silent"), 0.0)
    live.clear()
    assert after(evicted("b", "silent"), 1_000.0)
    assert after(registered("a"), 0.0)
    assert after(registered("a"), 34.9)
    assert not after(registered("a"), 0.1)


@pytest.mark.parametrize(
    ("silent", "back", "may_lack"),
    [("abc", "a", True), ("ab", "a", True), ("a", "a", False), ("abc", "e", False)],
    ids=["most", "half", "all are back", "a new broker"],
)
def test_first_return_after_half_became_silent_may_precede_others(silent: str, back: str, *, may_lack: bool) -> None:
    """Of four brokers some survive the outage of a network: those that became silent may be back up to 35 s later.

    Until the first of them is back they count as dead: a rack without power would keep the server unready for ever.
    """
    clock, live = FakeClock(), set("abcd")
    brokers = BrokersExpectedBack(clock.monotonic, TableLimits(8, 1, 1, 1), live)
    for name in silent:
        live.remove(name)
        brokers.observe(evicted(name, "silent"))
    clock.stall(1_000.0)
    assert not brokers.may_lack_live_brokers

    live.add(back)
    brokers.observe(registered(back))
    assert brokers.may_lack_live_brokers is may_lack
    clock.stall(34.9)
    assert brokers.may_lack_live_brokers is may_lack
    clock.stall(0.1)
    assert not brokers.may_lack_live_brokers


def test_one_outage_is_one_wait() -> None:
    """Brokers of a rack that start one by one do not make the server wait anew."""
    clock, live = FakeClock(), set("abcd")
    brokers = BrokersExpectedBack(clock.monotonic, TableLimits(8, 1, 1, 1), live)
    for name in "abc":
        live.remove(name)
        brokers.observe(evicted(name, "silent"))
    live.add("a")
    brokers.observe(registered("a"))
    clock.stall(35.0)

    live.add("b")
    brokers.observe(registered("b"))

    assert not brokers.may_lack_live_brokers


def test_silent_brokers_are_bounded() -> None:
    """Peers that register ever new names and become silent displace the oldest, which then come as new brokers."""
    live = set("x")
    brokers = BrokersExpectedBack(FakeClock().monotonic, LIMITS, live)
    for name in "abc":
        brokers.observe(evicted(name, "silent"))

    live.add("a")
    brokers.observe(registered("a"))
    assert not brokers.may_lack_live_brokers
    live.add("b")
    brokers.observe(registered("b"))
    assert brokers.may_lack_live_brokers
