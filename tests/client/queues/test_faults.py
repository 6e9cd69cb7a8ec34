"""Which brokers are left alone, for how long, and what ends it."""

from typing import Literal

import pytest

from namesrv_client.queues.faults import FaultStrategy


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0)),
        *((550, 2_000), (1_799, 2_000), (1_800, 5_000), (2_999, 5_000), (3_000, 6_000), (4_999, 6_000)),
        *((5_000, 10_000), (14_999, 10_000), (15_000, 30_000), (100_000, 30_000)),
    ],
)
def test_pauses_of_rocketmq_5(latency_ms: int, pause_ms: int) -> None:
    """The table from 5.1.4 on: the entry of the largest threshold that the latency has reached."""
    assert pause_ms == FaultStrategy("5").pause_ms(latency_ms)


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0)),
        *((550, 30_000), (999, 30_000), (1_000, 60_000), (1_999, 60_000), (2_000, 120_000), (2_999, 120_000)),
        *((3_000, 180_000), (14_999, 180_000), (15_000, 600_000), (100_000, 600_000)),
    ],
)
def test_pauses_of_rocketmq_4(latency_ms: int, pause_ms: int) -> None:
    """The table of 4.9 and up to 5.1.3."""
    assert pause_ms == FaultStrategy("4").pause_ms(latency_ms)


@pytest.mark.parametrize(("table", "seconds"), [("5", 10.0), ("4", 600.0)])
def test_a_failure_isolates_whatever_it_took(table: Literal["5", "4"], seconds: float) -> None:
    """As 10,000 ms in the newer table, which makes 10 s, and as 30,000 ms in the older one, which makes 600."""
    faults = FaultStrategy(table)

    faults.report("b", 1.0, 100.0, failed=True)

    assert not faults.is_available("b", 100.0 + seconds - 0.001)
    assert faults.is_available("b", 100.0 + seconds)


def test_slowness_leaves_others_alone() -> None:
    """LatencyFaultToleranceImplTest.testUpdateFaultItem: 3,000 ms make one broker unavailable, and no other."""
    faults = FaultStrategy()

    faults.report("b", 3_000, 0.0, failed=False)

    assert (False, True) == (faults.is_available("b", 5.999), faults.is_available("other", 0.0))


def test_a_pause_ends_by_itself() -> None:
    """LatencyFaultToleranceImplTest.testIsAvailable: unavailable at first, available when the time is over."""
    faults = FaultStrategy()

    faults.report("b", 550, 0.0, failed=False)

    assert (False, True) == (faults.is_available("b", 1.999), faults.is_available("b", 2.0))


def test_a_success_ends_an_isolation() -> None:
    """In RocketMQ an isolation can only grow; here an answer in good time says that the broker is back."""
    faults = FaultStrategy()
    faults.report("b", 1, 0.0, failed=True)

    faults.report("b", 20, 1.0, failed=False)

    assert faults.is_available("b", 1.0)


def test_a_slow_success_does_not_shorten_an_isolation() -> None:
    """600 ms make 2 s; the 10 s of the failure before it stay."""
    faults = FaultStrategy()
    faults.report("b", 1, 0.0, failed=True)

    faults.report("b", 600, 1.0, failed=False)

    assert (False, True) == (faults.is_available("b", 9.999), faults.is_available("b", 10.0))


def test_a_second_failure_makes_an_isolation_longer() -> None:
    """10 s from the last one on."""
    faults = FaultStrategy()
    faults.report("b", 1, 0.0, failed=True)

    faults.report("b", 1, 5.0, failed=True)

    assert (False, True) == (faults.is_available("b", 14.999), faults.is_available("b", 15.0))


def test_an_unreachable_broker_is_not_available_however_long_ago_it_failed() -> None:
    """RocketMQ says the same in its log and picks it again; here somebody has to have reached it."""
    faults = FaultStrategy()
    faults.report("b", 1, 0.0, failed=True, is_reachable=False)
    assert (False, False) == (faults.is_available("b", 1e6), faults.is_reachable("b"))
    assert ["b"] == faults.unreachable()

    faults.reached("b")

    assert (True, True) == (faults.is_available("b", 1e6), faults.is_reachable("b"))
    assert [] == faults.unreachable()


def test_a_success_makes_a_broker_reachable() -> None:
    """LatencyFaultToleranceImplTest.testIsReachable, the other way round."""
    faults = FaultStrategy()
    faults.report("b", 1, 0.0, failed=True, is_reachable=False)

    faults.report("b", 1, 1.0, failed=False)

    assert (True, True) == (faults.is_available("b", 1.0), faults.is_reachable("b"))


def test_a_removed_broker_is_available() -> None:
    """LatencyFaultToleranceImplTest.testRemove."""
    faults = FaultStrategy()
    faults.report("b", 15_000, 0.0, failed=True, is_reachable=False)

    faults.remove("b")

    assert (True, True) == (faults.is_available("b", 0.0), faults.is_reachable("b"))


def test_brokers_that_are_well_cost_nothing() -> None:
    """Nothing is kept of a broker that was never slow."""
    faults = FaultStrategy()

    faults.report("b", 20, 0.0, failed=False)

    assert "<FaultStrategy [0 brokers]>" == repr(faults)
    faults.reached("b")
    assert "<FaultStrategy [0 brokers]>" == repr(faults)
