"""The reference: replays under other settings, as docs/staleness.md has them."""

import math

import pytest

from tests.spark_jobs.reference import analyse
from tests.spark_jobs.reference.boots import Boot, boots
from tests.spark_jobs.reference.lines import read
from tests.spark_jobs.reference.policies import EvenScans, Fixed, Phi
from tests.spark_jobs.reference.replay import client_staleness, replay
from tests.support.heartbeat_lines import HeartbeatLines, broker, files_of

S = 1_000_000


def boot_of(lines: HeartbeatLines) -> Boot:
    """The boot of these lines."""
    (boot,) = boots(read(files_of(lines)).lines)
    return boot


def fixed(lines: HeartbeatLines, expiry_s: float, scan_s: float = 5) -> list[tuple[float, float, bool]]:
    """(evicted, staleness, false) in seconds, under a fixed policy."""
    boot = boot_of(lines)
    found = replay(boot, Fixed(round(expiry_s * S)), EvenScans(boot, round(scan_s * S)))
    return [(x.at / S, x.staleness / S, x.is_false) for x in found]


def dead() -> HeartbeatLines:
    """Started at 2 s; heard at 10 s and 40 s, never after that; the log ends at 300 s."""
    return HeartbeatLines().start(2_000).beats(10_000, 40_000).scan(300_000, 60)


@pytest.mark.parametrize(
    ("expiry", "scan", "expected"),
    [
        # scans at 2, 7, 12, …; deadline 70: 72
        (30, 5, [(72, 32, False)]),
        # scans at 2, 12, 22, …; deadline 160: 162
        (120, 10, [(162, 122, False)]),
        # the deadline 42 is itself a scan, and one may be silent for exactly that long: 52
        (2, 10, [(22, 12, True), (52, 12, False)]),
        # 297 is the last scan; the log ends at 300
        (256.999, 5, [(297, 257, False)]),
        (257, 5, []),
    ],
)
def test_fixed_expiry_and_scans(expiry: float, scan: float, expected: list[tuple[float, float, bool]]) -> None:
    """The first scan strictly after the deadline."""
    assert expected == fixed(dead(), expiry, scan)


def test_a_scan_at_the_last_line_counts() -> None:
    """Not after it."""
    assert [(300, 260, False)] == fixed(HeartbeatLines().start(0).beat(40_000).scan(300_000, 60), 255)


def test_a_beat_at_the_scan_is_in_time() -> None:
    """The eviction has to come before the next beat."""
    assert [(12, 10, True)] == fixed(HeartbeatLines().start(2_000).beats(2_000, 12_001), 5)
    assert [] == fixed(HeartbeatLines().start(2_000).beats(2_000, 12_000), 5)


def test_who_asked_for_an_expiry_keeps_it() -> None:
    """10 s, as an acting master has it; what is tried out is another one's."""
    lines = HeartbeatLines().start(2_000).beat(10_000, broker(expiry_ms=10_000)).scan(300_000, 60)

    assert [(22, 12, False)] == fixed(lines, 60)


@pytest.mark.parametrize(("reason", "expected"), [("disconnected", []), ("silent", [(72, 32, False)])])
def test_a_closed_connection_closes_the_gap(reason: str, expected: list[tuple[float, float, bool]]) -> None:
    """It does not depend on these settings; a silent eviction is what is replayed."""
    assert expected == fixed(dead().evict(72_000, reason=reason), 30)


def test_a_closing_after_the_deadline_changes_nothing() -> None:
    """It would have been found by then."""
    assert [(72, 32, False)] == fixed(dead().evict(72_001, reason="unregistered"), 30)


def test_without_start_the_first_scan_is_where_scans_begin() -> None:
    """Then the first line."""
    own = broker(expiry_ms=30_000)

    assert [(33, 32, False)] == fixed(HeartbeatLines().beat(1_000, own).scan(3_000, 1).scan(100_000, 20), 99)
    assert [(36, 35, False)] == fixed(HeartbeatLines().beat(1_000, own).served(100_000, 1), 99)


def test_time_stands_still_while_the_server_is_late() -> None:
    """It slept from 30 to 80 s: the silence of 100 s was one of 50 s."""
    lines = HeartbeatLines().start(0).beat(0).late(80_000, 50_000).beat(100_500).scan(100_501, 9)

    assert [] == fixed(lines, 50)
    assert [(50, 50, True)] == fixed(lines, 45.001)


@pytest.mark.parametrize(
    ("agent", "back", "is_false"), [("x", 290_000, True), (None, 192_000, True), (None, 193_000, False)]
)
def test_a_broker_that_came_back(agent: str | None, back: int, is_false: bool) -> None:  # noqa: FBT001
    """By its agent, or within the 120 s of its own expiry after the replayed eviction at 72 s."""
    lines = HeartbeatLines().start(2_000).beats(40_000, back, of=broker(agent_id=agent)).scan(300_000, 60)

    assert (72, 32, is_false) == fixed(lines, 30)[0]


def test_clients_wait_for_their_next_poll() -> None:
    """Ten phases: 32 s, and 0.25, 0.75, …, 4.75 s of a poll every 5 s."""
    boot = boot_of(dead())
    (eviction,) = replay(boot, Fixed(30 * S), EvenScans(boot, 5 * S))

    expected = [32.25, 32.75, 33.25, 33.75, 34.25, 34.75, 35.25, 35.75, 36.25, 36.75]
    assert expected == [value / S for value in client_staleness(eviction, 5 * S)]


@pytest.mark.parametrize("threshold", [1.0, 8.0, 16.0])
def test_phi_is_where_the_logistic_curve_meets_the_threshold(threshold: float) -> None:
    """Put in again, it gives the threshold."""
    y = Phi(threshold).deviations

    assert math.isclose(threshold, math.log10(1 + math.exp(y * (1.5976 + 0.070566 * y * y))), rel_tol=1e-12)


def test_phi_of_a_regular_broker() -> None:
    """Ten gaps of 10 s: mean 10 s, deviation a tenth; 8 is met at about 5.2 deviations: found at 120 s."""
    lines = HeartbeatLines().start(0).beats(*range(0, 100_001, 10_000)).scan(300_000, 60)
    boot = boot_of(lines)

    assert [120 * S] == [x.at for x in replay(boot, Phi(8.0), EvenScans(boot, 5 * S))]
    # y(8) by hand: 18.42 = 1.5976 y + 0.070566 y^3 at y = 5.10 (8.15 + 9.36 = 17.51) .. 5.25 (8.39 + 10.21 = 18.60)
    assert 5.10 < Phi(8.0).deviations < 5.25


def test_phi_with_a_deviation() -> None:
    """Gaps of 8 and 12 s in turn: mean 10 s, deviation 2 s; 100 + 10 + 2 y lies in 120.2 … 120.5, found at 125 s."""
    times = [0, 8_000, 20_000, 28_000, 40_000, 48_000, 60_000, 68_000, 80_000, 88_000, 100_000]
    boot = boot_of(HeartbeatLines().start(0).beats(*times).scan(300_000, 60))

    assert [125 * S] == [x.at for x in replay(boot, Phi(8.0), EvenScans(boot, 5 * S))]


def test_phi_goes_by_the_expiry_before_ten_gaps() -> None:
    """Nine gaps: evicted after the logged 120 s; gaps of a former life do not count."""
    lines = HeartbeatLines().start(0).beats(0, 10_000).evict(20_000, reason="disconnected")
    lines.beats(*range(30_000, 120_001, 10_000)).scan(300_000, 60)
    boot = boot_of(lines)

    assert [245 * S] == [x.at for x in replay(boot, Phi(8.0), EvenScans(boot, 5 * S))]


def as_logged() -> HeartbeatLines:
    """Heard at 10 s, found silent by the 27th scan: that at 130 s was not after its deadline yet."""
    lines = HeartbeatLines().start(0).beat(10_000).scan(125_000, 25).scan(130_000, 26).scan(135_000, 27)
    return lines.scan(140_000, 28)


def test_the_replay_as_logged_is_exact() -> None:
    """The same broker at the same scan."""
    found = analyse(files_of(as_logged().evict(135_001, scan=27))).as_logged

    assert found.is_exact
    assert {(("boot-1", "c1", "10.0.0.1:broker-a-0", 0), 27): 1} == found.replayed


@pytest.mark.parametrize("scan", [26, 28])
def test_a_server_that_evicts_at_another_scan_is_found_out(scan: int) -> None:
    """Too early or too late."""
    assert not analyse(files_of(as_logged().evict(140_001, scan=scan))).as_logged.is_exact


def test_a_server_that_forgets_to_evict_is_found_out() -> None:
    """No eviction at all."""
    assert not analyse(files_of(as_logged())).as_logged.is_exact


def test_a_finding_that_was_given_up_is_left_out() -> None:
    """The broker was fenced at the 27th scan, and evicted at the 28th."""
    lines = as_logged().add("fenced", 135_001, **broker(), reason="silent", scan=27).evict(140_001, scan=28)

    assert analyse(files_of(lines)).as_logged.is_exact
