"""The reference has the numbers written by hand, at the edges of the definitions in docs/staleness.md.

test_silences.py has those of missing lines and of clocks that are set. Everything else is proven by the comparison with
the report, and by generated logs with known truth.
"""

from typing import Any

import pytest

from namesrv_spark_jobs.options import Options
from tests.spark_jobs.reference import Analysis
from tests.spark_jobs.reference.lines import Boot
from tests.spark_jobs.reference.registration_periods import RegistrationPeriod
from tests.spark_jobs.reference.replay import even_scans, replay
from tests.support.heartbeat_lines import MIDNIGHT_MS, Broker, HeartbeatLines, broker, files_of, member

# A second in the reference's unit.
S = 1_000_000
SLAVE = broker("broker-a", 1)
# A broker before and after its election as master.
ELECTED, MASTER = (broker("broker-a", number, broker_addr="10.0.0.1:10911") for number in (1, 0))
NO_AGENT = broker(agent_id=None)


def of(*lines: HeartbeatLines) -> Analysis:
    """The analysis of these boots."""
    return Analysis(files_of(*lines))


def boot_of(lines: HeartbeatLines) -> Boot:
    """The boot of these lines."""
    (boot,) = Analysis(files_of(lines)).boots
    return boot


def period_of(lines: HeartbeatLines) -> RegistrationPeriod:
    """The one registration period in these lines."""
    (period,) = of(lines).periods
    return period


def test_a_wall_clock_that_steps_moves_nothing_and_is_counted() -> None:
    """Two of five anchors are an hour ahead: the median is the true offset, and two steps are counted."""
    lines = HeartbeatLines().start(0).scan(5_000, 1)
    lines.wall_ms += 3_600_000
    lines.scan(10_000, 2).heartbeat(11_000).scan(15_000, 3)
    lines.wall_ms -= 3_600_000
    found = of(lines.scan(20_000, 4))
    (boot,) = found.boots

    assert boot.offset_ms == MIDNIGHT_MS
    assert found.summary["input"]["clock_steps"] == 2
    assert boot.wall(11_000_000) == (MIDNIGHT_MS + 11_000) * 1000


@pytest.mark.parametrize(("step_ms", "steps"), [(500, 0), (501, 1), (-501, 1)])
def test_a_clock_step_is_over_half_a_second(step_ms: int, steps: int) -> None:
    """A difference of half a second or less is drift of the clock, and is not counted."""
    lines = HeartbeatLines().start(0)
    lines.wall_ms += step_ms

    assert of(lines.scan(5_000, 1)).summary["input"]["clock_steps"] == steps


def test_a_log_that_begins_later_begins_with_the_sum_so_far() -> None:
    """Without a `start` line, and only then, the `opened` line has the sum of earlier delays."""
    opened = {"scan_interval_ms": 5_000, "broker_expiry_ms": 60_000, "late_ms": 700}
    first = boot_of(HeartbeatLines().add("opened", 10_000, **opened).heartbeat(11_000))
    second = boot_of(HeartbeatLines().start(0).late(1_000, 700).add("opened", 10_000, **opened).heartbeat(11_000))

    assert 10_300_000 == first.live[2] == second.live[4]
    assert (first.scan_interval, first.expiry) == (5_000_000, 60_000_000)
    assert (second.scan_interval, second.expiry) == (5_000_000, 120_000_000)


@pytest.mark.parametrize(
    ("times", "interval_ms"),
    [
        ([0, 30_000, 60_000], 30_000),
        # The lower of two middle values; 5 ms are too short for an interval.
        ([0, 30_000, 70_000], 30_000),
        ([0, 5, 40_005], 40_000),
        ([0, 10, 40], 10),
        # Without intervals, a quarter of the expiry.
        ([0], 30_000),
        # Eleven intervals, of which the last ten count: five of 1 s and five of 2 s.
        ([0, *range(5_000, 10_001, 1_000), *range(12_000, 20_001, 2_000)], 1_000),
    ],
)
def test_usual_interval_is_the_median_of_the_last_ten_intervals(times: list[float], interval_ms: int) -> None:
    """Intervals under 10 ms are left out."""
    assert period_of(HeartbeatLines().start().heartbeats(*times)).usual_interval == interval_ms * 1000


@pytest.mark.parametrize(
    ("removed", "late_at", "is_over"),
    [(156_000, None, False), (156_001, None, True), (160_001, 100_000, False), (160_001, 20_000, True)],
)
def test_over_its_bound(removed: int, late_at: int | None, is_over: bool) -> None:
    """A broker last seen at 30 s may stay for 120 + 5 + 1 s, and for 4.5 s of the server's lateness in between."""
    lines = HeartbeatLines().start().heartbeats(0, 30_000)
    if late_at is not None:
        lines.late(late_at, 4_500)

    assert period_of(lines.evict(removed)).is_over_bound == is_over


@pytest.mark.parametrize(
    ("reason", "gone", "back", "after_ms", "is_false"),
    [
        ("silent", broker(), broker(), 999_000, True),
        ("disconnected", broker(), broker(), 999_000, True),
        # The return of a broker that unregistered is no false eviction.
        ("unregistered", broker(), broker(), 1_000, False),
        ("superseded", broker(), broker(), 1_000, False),
        ("silent", broker(), broker(agent_id="another"), 1_000, False),
        ("silent", broker(), NO_AGENT, 1_000, False),
        ("silent", NO_AGENT, NO_AGENT, 120_000, True),
        ("silent", NO_AGENT, NO_AGENT, 120_000.001, False),
        # Another broker at the same address.
        ("silent", broker(), {**broker(), "broker_id": 1}, 1_000, False),
    ],
)
def test_a_false_eviction(reason: str, gone: Broker, back: Broker, after_ms: float, is_false: bool) -> None:
    """An eviction is false if the same process returns: the same agent id, or within one expiry."""
    lines = HeartbeatLines().start().heartbeat(0, gone).evict(121_000, gone, reason).heartbeat(121_000 + after_ms, back)

    assert of(lines).periods[0].is_false_eviction == is_false


def test_near_misses() -> None:
    """A silence of 80 s, two thirds of 120 s, is no near miss, but one of 80.001 s is.

    Intervals with an eviction, or with a stop of the server, do not count.
    """
    lines = HeartbeatLines().start().heartbeats(0, 80_000, 160_001).evict(300_000).heartbeat(400_000)
    lines.late(430_000, 30_000).heartbeat(490_000)

    assert [(heartbeat.at, silence) for heartbeat, silence in of(lines).near_misses] == [(80 * S, 80_001_000)]


def test_exposed_pulls() -> None:
    """There are 2 + 4 + 8 pulls of routes with the broker, from its last heartbeat to one scan after the removal.

    A broker that unregisters has no such pulls.
    """
    for reason, expected in (("silent", [{"t": 14}]), ("unregistered", [])):
        lines = HeartbeatLines().start().heartbeats(0, 30_000).route(0, 1, member("broker-a"), member("broker-b"))
        lines.pulls(30_000, 1, 1).pulls(30_001, 1, 2).pulls(150_000, 1, 4).evict(152_000, reason=reason)
        lines.route(152_000, 2, member("broker-b")).pulls(157_000, 1, 8).pulls(157_001, 1, 16).pulls(157_000, 2, 32)

        assert [pulls for _, pulls in of(lines).exposed_pulls] == expected


def _server(
    name: str,
    *heartbeats: int,
    evict: int = 0,
    up: range = range(200),
    ahead: int = 0,
    started: int | None = None,
    silent: int = 0,
) -> HeartbeatLines:
    """A server with heartbeats of broker-a at these seconds, perhaps with a monotonic clock that is ahead.

    With `silent`, the server knew the broker before the log began, `silent` seconds after its last heartbeat.
    """
    lines = HeartbeatLines(f"{name}{up}", name, MIDNIGHT_MS - ahead * 1000)
    lines.start((up.start + ahead if started is None else started) * 1000).scan((up.start + ahead) * 1000, 1)
    lines.heartbeats(*((heartbeat + ahead) * 1000 for heartbeat in heartbeats), silent_ms=silent * 1000)
    if evict:
        lines.evict((evict + ahead) * 1000)
    return lines.add("stop", (up.stop + ahead) * 1000)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        # Server 1 has the broker first, and removes it last.
        ([_server("1", 10, evict=163), _server("2", 12, evict=166)], [(10, 12), (163, 166)]),
        # Wall times are compared.
        ([_server("1", 10), _server("2", 15, ahead=100)], [(10, 15)]),
        # A server that is down does not count: server 2 runs from 50 s to 80 s, and from 90 s on.
        (
            [_server("1", 10), _server("2", 60, up=range(50, 80)), _server("2", 95, up=range(90, 200))],
            [(50, 60), (90, 95)],
        ),
        # A single server, or two that never ran at the same time, cannot diverge.
        ([_server("1", 10, up=range(133)), _server("2", 140, up=range(135, 200))], []),
        # As long as any two of three servers differ, the episode continues.
        ([_server("1", 10, evict=140), _server("2", 10, evict=145), _server("3", 10, evict=150)], [(140, 150)]),
        ([_server("1", 10, evict=140), _server("2", 10, evict=150), _server("3")], [(10, 150)]),
        # A registration period without heartbeats has no beginning.
        ([_server("1", evict=10), _server("2")], []),
        # A broker that registered before the log begins sends its next heartbeat to each server at another time.
        ([_server("1", 3, started=-1, silent=30), _server("2", 28, started=-1, silent=30)], []),
        ([_server("1", 3, started=-1, silent=30), _server("2", 121, started=-1, silent=122)], []),
        ([_server("1", 3, started=-1, silent=30), _server("2", 28)], [(0, 28)]),
        # Server 1 removes a broker whose last heartbeat is before the log, and the broker registers again.
        (
            [_server("1", evict=50, started=-1).heartbeat(60_000), _server("2", 20, started=-1, silent=30)],
            [(50, 60)],
        ),
        # The log begins while the broker is down.
        ([_server("1", 60, started=-1), _server("2", 90, started=-1)], [(60, 90)]),
        ([_server("1", 60, started=-1), _server("2", evict=5, started=-1).heartbeat(62_000)], [(0, 5), (60, 62)]),
        # A server that ends within expiry and scan (125 s) may have a broker that registered before the log begins.
        ([_server("1", started=-1, up=range(125)), _server("2", 20, started=-1, silent=30)], []),
        ([_server("1", started=-1, up=range(126)), _server("2", 20, started=-1, silent=30)], [(0, 126)]),
        (
            [_server("1", started=-1, up=range(125)), _server("2", 20), _server("3", 10)],
            [(10, 20)],
        ),
        # Slave and master are two brokers: a server with one of them lacks the other, to its last line.
        (
            [_server("1", 10, up=range(20)), _server("2", up=range(12)).heartbeat(12_000, SLAVE).scan(18_000, 4)],
            [(10, 18), (12, 18)],
        ),
        # A slave that is elected master stays the same broker; server 1, restarted before, lacks it at first.
        (
            [
                _server("1", up=range(50)).heartbeats(10_000, 40_000, of=ELECTED),
                _server("1", up=range(60, 200)).heartbeat(70_000, ELECTED).heartbeat(100_000, MASTER),
                _server("2").heartbeats(10_000, 40_000, 70_000, of=ELECTED).heartbeat(100_000, MASTER),
            ],
            [(60, 70)],
        ),
    ],
)
def test_divergence(servers: list[HeartbeatLines], expected: list[tuple[int, int]]) -> None:
    """(from, to) in seconds since midnight, when the selected time begins."""
    analysis = Analysis(files_of(*servers), Options(since_ms=MIDNIGHT_MS))
    spans = [span for found in analysis.episodes.values() for span in found]

    assert [(began // S - MIDNIGHT_MS // 1000, ended // S - MIDNIGHT_MS // 1000) for began, ended in spans] == expected


def replayed(lines: HeartbeatLines, expiry_s: float, scan_s: float) -> list[tuple[float, float, bool]]:
    """(evicted, staleness, false) in seconds."""
    boot = boot_of(lines)
    scans = even_scans(boot, round(scan_s * S))
    return [(x.at / S, x.staleness / S, x.is_false) for x in replay(boot, round(expiry_s * S), scans)]


def dead() -> HeartbeatLines:
    """A server that starts at 2 s, with heartbeats at 10 s and 40 s only, and a log that ends at 300 s."""
    return HeartbeatLines().start(2_000).heartbeats(10_000, 40_000).scan(300_000, 60)


# A broker that requested 30 s keeps this expiry.
OWN = broker(expiry_ms=30_000)


@pytest.mark.parametrize(
    ("lines", "expiry", "scan", "expected"),
    [
        # Scans at 2, 7, 12, …; deadline 70: evicted at 72.
        (dead(), 30, 5, [(72, 32, False)]),
        # Scans at 2, 12, 22, …; deadline 160: evicted at 162.
        (dead(), 120, 10, [(162, 122, False)]),
        # At 42 there is a scan, but a broker may be silent for exactly its expiry: evicted at 52.
        (dead(), 2, 10, [(22, 12, True), (52, 12, False)]),
        # The last scan is at 297, and the log ends at 300.
        (dead(), 256.999, 5, [(297, 257, False)]),
        (dead(), 257, 5, []),
        # A scan at the time of the last line counts; later scans do not.
        (HeartbeatLines().start(0).heartbeat(40_000).scan(300_000, 60), 255, 5, [(300, 260, False)]),
        # A heartbeat at the time of the scan is in time.
        (HeartbeatLines().start(2_000).heartbeats(2_000, 12_001), 5, 5, [(12, 10, True)]),
        (HeartbeatLines().start(2_000).heartbeats(2_000, 12_000), 5, 5, []),
        (HeartbeatLines().start(2_000).heartbeat(10_000, OWN).scan(300_000, 60), 60, 5, [(42, 32, False)]),
        # A closed connection ends the silence; an eviction for silence is replayed.
        (dead().evict(72_000, reason="disconnected"), 30, 5, []),
        (dead().evict(72_000, reason="silent"), 30, 5, [(72, 32, False)]),
        (dead().evict(72_001, reason="disconnected"), 30, 5, [(72, 32, False)]),
        # Without a `start` line, scans count from the first scan, or from the first line.
        (HeartbeatLines().heartbeat(1_000, OWN).scan(3_000, 1).scan(100_000, 20), 99, 5, [(33, 32, False)]),
        (HeartbeatLines().heartbeat(1_000, OWN).served(100_000, 1), 99, 5, [(36, 35, False)]),
        # The server was stopped from 30 to 80 s, so a silence of 100 s counts as 50 s.
        (HeartbeatLines().start(0).heartbeat(0).late(80_000, 50_000).heartbeat(100_500).scan(100_501, 9), 50, 5, []),
    ],
)
def test_fixed_expiry_and_scans(lines: HeartbeatLines, expiry: float, scan: float, expected: list[Any]) -> None:
    """The first scan strictly after the deadline evicts, if the silence has not ended before."""
    assert replayed(lines, expiry, scan) == expected


@pytest.mark.parametrize(
    ("other", "scan", "is_exact"),
    # A fenced removal is left out; a server that evicts at another scan is found.
    [
        (None, 27, True),
        (None, 26, False),
        (None, 28, False),
        ({"event": "fenced", "reason": "silent"}, 28, True),
    ],
)
def test_the_replay_as_logged_is_exact(other: dict[str, Any] | None, scan: int, is_exact: bool) -> None:
    """With the last heartbeat at 10 s the 27th scan evicts: the scan at 130 s is not after the deadline."""
    lines = HeartbeatLines().start(0).heartbeat(10_000)
    for number in (25, 26, 27, 28):
        lines.scan(5_000 * number, number)
    if other is not None:
        lines.add(at=135_001, **broker(), **other, scan=27)

    found = of(lines.evict(140_001, scan=scan)).as_logged

    assert (found["exact"], found["replayed"], found["logged"]) == (is_exact, 1, 1)


def test_eviction_whose_heartbeat_is_before_the_log_is_not_replayed() -> None:
    """A replay needs the last heartbeat; an eviction without it is not counted as missing."""
    found = of(HeartbeatLines().scan(5_000, 1).evict(5_000, scan=1, silent_ms=125_000)).as_logged

    assert (found["exact"], found["replayed"], found["logged"]) == (True, 0, 0)
