"""The reference: lives, staleness, false evictions and near misses, as docs/staleness.md has them."""

import pytest

from tests.spark_jobs.reference import Analysis, analyse
from tests.support.heartbeat_lines import Broker, HeartbeatLines, broker, files_of

S = 1_000_000  # a second in the reference's unit


def of(lines: HeartbeatLines) -> Analysis:
    """The analysis of one boot."""
    return analyse(files_of(lines))


def test_a_life_begins_with_a_beat_and_ends_with_an_eviction() -> None:
    """Two lives of one broker, the second one open; another address is another broker."""
    lines = HeartbeatLines().start().beats(1_000, 31_000).evict(155_000).beat(200_000)
    lines.beat(2_000, broker("broker-b"))

    found = [(x.broker.broker_name, x.first_ok, x.last_ok, x.removed, x.reason) for x in of(lines).lives]

    assert [
        ("broker-a", 1 * S, 31 * S, 155 * S, "silent"),
        ("broker-a", 200 * S, 200 * S, None, None),
        ("broker-b", 2 * S, 2 * S, None, None),
    ] == found


def test_an_eviction_alone_is_a_life_that_began_before_the_log() -> None:
    """Its last beat was as long ago as the line says."""
    (life,) = of(HeartbeatLines().start().evict(125_000, silent_ms=122_500.5)).lives

    assert (None, 2_499_500, 122_500_500) == (life.first_ok, life.last_ok, life.upper)


@pytest.mark.parametrize(
    ("times", "period_ms"),
    [
        ([0, 30_000, 60_000], 30_000),
        # of two the lower one; 5 ms apart is no gap of its own
        ([0, 30_000, 70_000], 30_000),
        ([0, 5, 40_005], 40_000),
        ([0, 10, 40], 10),
        # without a gap, a quarter of the expiry
        ([0], 30_000),
        # eleven gaps, of which the ten last ones count: five of 1 s and five of 2 s
        ([0, *range(5_000, 10_001, 1_000), *range(12_000, 20_001, 2_000)], 1_000),
    ],
)
def test_the_period_is_the_median_of_the_last_ten_gaps(times: list[float], period_ms: int) -> None:
    """Gaps under 10 ms are left out."""
    (life,) = of(HeartbeatLines().start().beats(*times)).lives

    assert period_ms * 1000 == life.period


def test_registry_staleness_of_a_silent_broker() -> None:
    """Heard at 60 s, gone at 183 s: 123 s at most; it died within the 30 s after its last beat: 93 s at least."""
    (life,) = of(HeartbeatLines().start().beats(0, 30_000, 60_000).evict(183_000)).lives

    assert (123 * S, 93 * S) == (life.upper, life.lower)


@pytest.mark.parametrize(
    ("reason", "upper", "lower"),
    [("silent", 20 * S, 0), ("disconnected", 20 * S, 0), ("unregistered", 0, 0), ("superseded", 0, 0)],
)
def test_who_said_goodbye_was_never_stale(reason: str, upper: int, lower: int) -> None:
    """Neither was one whose place another had taken; less than a period is 0 at least."""
    (life,) = of(HeartbeatLines().start().beats(0, 30_000).evict(50_000, reason=reason)).lives

    assert (upper, lower) == (life.upper, life.lower)


@pytest.mark.parametrize(
    ("removed", "late_at", "is_over"),
    [(156_000, None, False), (156_001, None, True), (160_001, 100_000, False), (160_001, 20_000, True)],
)
def test_over_its_bound(removed: int, late_at: int | None, is_over: bool) -> None:  # noqa: FBT001
    """Heard at 30 s: 120 + 5 + 1 s are allowed, and the 4.5 s by which the server was late in between."""
    lines = HeartbeatLines().start().beats(0, 30_000)
    if late_at is not None:
        lines.late(late_at, 4_500)

    assert is_over == of(lines.evict(removed)).intervals[0].is_over_bound


def test_without_settings_nothing_is_over_its_bound() -> None:
    """The log begins later, and does not say what was allowed."""
    assert not of(HeartbeatLines().beat(0).evict(999_000)).intervals[0].is_over_bound


NO_AGENT = broker(agent_id=None)


@pytest.mark.parametrize(
    ("gone", "back", "after_ms", "is_false"),
    [
        (broker(), broker(), 999_000, True),
        (broker(), broker(agent_id="another"), 1_000, False),
        (broker(), NO_AGENT, 1_000, False),
        (NO_AGENT, NO_AGENT, 120_000, True),
        (NO_AGENT, NO_AGENT, 120_000.001, False),
        # another broker at this address
        (broker(), {**broker(), "broker_id": 1}, 1_000, False),
    ],
)
def test_a_false_eviction(gone: Broker, back: Broker, after_ms: float, is_false: bool) -> None:  # noqa: FBT001
    """The same process is heard again: its agent says so, or it is back within one expiry."""
    found = of(HeartbeatLines().start().beat(0, gone).evict(121_000, gone).beat(121_000 + after_ms, back))

    assert is_false == found.lives[0].is_false_eviction


@pytest.mark.parametrize(
    ("reason", "count"), [("silent", 1), ("disconnected", 1), ("unregistered", 0), ("superseded", 0)]
)
def test_only_what_was_not_announced_can_be_false(reason: str, count: int) -> None:
    """A broker that unregistered and registers again was told the truth about."""
    lines = HeartbeatLines().start().beat(0).evict(1_000, reason=reason).beat(2_000)

    assert count == len(of(lines).false_evictions)


def test_the_next_beat_of_the_same_broker_decides() -> None:
    """A slave took the address for a moment, then the former process came back."""
    slave = {**broker(), "broker_id": 1, "agent_id": "other"}
    lines = HeartbeatLines().start().beat(0).evict(121_000).beat(122_000, slave).evict(123_000, slave).beat(124_000)

    assert [True, False, False] == [life.is_false_eviction for life in of(lines).lives]


def test_near_misses() -> None:
    """80 s are two thirds of 120 s and none yet; 80.001 s are one; across lives there is none."""
    lines = HeartbeatLines().start().beats(0, 80_000, 160_001).evict(300_000).beat(400_000)

    assert [(80 * S, 160_001_000)] == [(miss.before.at, miss.after.at) for miss in of(lines).near_misses]


def test_a_late_server_makes_no_near_miss() -> None:
    """90 s between two beats, of which the server slept 30 s."""
    assert [] == of(HeartbeatLines().start().beat(0).late(60_000, 30_000).beat(90_000)).near_misses
