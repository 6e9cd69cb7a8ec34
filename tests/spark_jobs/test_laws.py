"""Logs of many independent deaths follow the laws that periods, expiry, scans and polls make.

A time T is a constant and a sum of uniform waits: H since the last heartbeat (30 s), S to the scan that finds it (5 or
10 s), P to the client's next poll (30 s); the expiry E is 120 s. A heartbeat log does not contain the time of a death:
times since the death are measured with the truth that the generator writes, times since the last heartbeat come from
the log alone. Consumers drop queues at their next rebalance, which no log shows: their law is not tested here.

Our server has no idle timer: a silent broker waits for the scan, strictly after its expiry.
"""

from pathlib import Path

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.options import Options
from tests.spark_jobs.reference import Analysis
from tests.spark_jobs.reference.registration_periods import Routes
from tests.support.staleness_laws import Deaths, Law, settings_for
from tools.heartbeat_logs.world import Kind

# thousands of deaths, so that the laws show
pytestmark = pytest.mark.slow

PAIRS = 1000
S = 1_000_000


class Sample:
    """The times of a thousand deaths of a kind, in seconds, as the reference measures them."""

    def __init__(self, tmp_path: Path, kind: Kind, scan: float, *, heartbeat: float = 30, expiry: float = 120) -> None:
        settings = settings_for(scan, heartbeat=heartbeat, expiry=expiry)
        deaths = Deaths.written(settings, kind, PAIRS, tmp_path)
        analysis = Analysis(deaths.files)
        (boot,) = analysis.boots
        routes = Routes(boot)
        exposed = [found for period in analysis.intervals for found in routes.exposed(period)]
        died = {found: deaths.died[str(found.period.broker.broker_addr)] for found in exposed}
        assert {"seen"} == {found.outcome for found in exposed}
        assert PAIRS == len(exposed) == len({found.period for found in exposed}) == len(analysis.intervals)
        self.is_exact = analysis.as_logged["exact"]
        self.reasons = {found.period.reason for found in exposed}
        self.removed_after_last_heartbeat = [
            (found.period.last_line.at - found.period.last_ok) / S for found in exposed
        ]
        self.seen_after_removal = [(found.at - found.period.last_line.at) / S for found in exposed]
        self.seen_after_last_heartbeat = [found.staleness / S for found in exposed]
        with EmbeddedEngine(tmp_path / "staging") as engine:
            report = analyse(engine, deaths.paths, Options(), lambda _step: None)
            self.reported = {
                "removed": [round(row["upper_ms"] / 1000, 6) for row in report.intervals.collect()],
                "seen": [round(row["staleness_ms"] / 1000, 6) for row in report.clients.collect()],
            }
        # with the truth: when each of them died
        self.removed_after_death = [boot.wall(found.period.last_line.at) / S - at for found, at in died.items()]
        self.seen_after_death = [boot.wall(found.at) / S - at for found, at in died.items()]


@pytest.mark.parametrize(("kind", "reason"), [(Kind.UNREGISTER, "unregistered"), (Kind.CRASH, "disconnected")])
def test_announced_end_is_gone_with_the_next_poll(tmp_path: Path, kind: Kind, reason: str) -> None:
    """F1, F2: T = U(0, 30), by the truth; and the same from the removal on, by the log alone."""
    found = Sample(tmp_path, kind, 5)

    assert {reason} == found.reasons
    Law(0, (30,)).check(found.seen_after_death)
    Law(0, (30,)).check(found.seen_after_removal)


@pytest.mark.parametrize("scan", [5, 10])
def test_silent_broker_waits_for_expiry_scan_and_poll(tmp_path: Path, scan: float) -> None:
    """F3: T = 90 + U(0, 30) + U(0, scan) + U(0, 30); the server alone without the last one."""
    found = Sample(tmp_path, Kind.SILENCE, scan)

    assert {"silent"} == found.reasons
    assert found.is_exact
    Law(90, (30, scan, 30)).check(found.seen_after_death)
    Law(90, (30, scan)).check(found.removed_after_death)
    # by the log alone: a scan strictly after the expiry, and then a poll
    Law(120, (scan,)).check(found.removed_after_last_heartbeat)
    assert min(found.removed_after_last_heartbeat) > 120
    Law(0, (30,)).check(found.seen_after_removal)
    Law(120, (scan, 30)).check(found.seen_after_last_heartbeat)
    # which the report says, too
    assert sorted(found.removed_after_last_heartbeat) == sorted(found.reported["removed"])
    assert sorted(found.seen_after_last_heartbeat) == sorted(found.reported["seen"])


def test_acting_masters_are_found_sooner(tmp_path: Path) -> None:
    """Heartbeats every second and 10 s of expiry: T = 9 + U(0, 1) + U(0, 5) + U(0, 30)."""
    found = Sample(tmp_path, Kind.SILENCE, 5, heartbeat=1, expiry=10)

    Law(9, (1, 5, 30)).check(found.seen_after_death)
    Law(9, (1, 5)).check(found.removed_after_death)
    Law(10, (5,)).check(found.removed_after_last_heartbeat)


def test_a_server_with_an_idle_timer_would_be_found_out(tmp_path: Path) -> None:
    """Its removals come right at 120 s, not up to 5 s later; nor is a scan of 10 s taken for one of 5 s."""
    found = Sample(tmp_path, Kind.SILENCE, 5)

    for wrong in (Law(90, (30, 30)), Law(90, (30, 10, 30))):
        with pytest.raises(AssertionError):
            wrong.check(found.seen_after_death)
    with pytest.raises(AssertionError):
        Law(120, (10,)).check(found.removed_after_last_heartbeat)


def test_the_law_of_a_sum_is_right() -> None:
    """Two equal waits make a triangle: an eighth of all is in the first half of the first wait."""
    law = Law(90, (30, 30))

    assert [pytest.approx(law.cdf(x)) for x in (90, 105, 120, 135, 150)] == [0, 0.125, 0.5, 0.875, 1]
    assert law.mean == 120
    assert pytest.approx(12.247, abs=1e-3) == law.deviation
    assert pytest.approx(0.5) == Law(0, (2,)).distance([0.0, 2.0])
