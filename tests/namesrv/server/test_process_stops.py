"""The time between two ticks, by which stops of the process are noticed."""

import pytest

from namesrv.routeinfo.tables.liveness import LONGEST_TICK_SECONDS
from namesrv.server.process_stops import ProcessStops
from tests.support.fake_clock import FakeClock


@pytest.mark.parametrize(
    ("scan_interval_seconds", "ticks"), [(0.1, 1), (1.0, 1), (1.4, 2), (2.5, 3), (10.0, 10), (10.4, 11), (3600.0, 3600)]
)
def test_ticks_divide_the_scan_interval_and_are_a_second_apart_at_most(
    scan_interval_seconds: float, ticks: int
) -> None:
    """From a second after a tick on, the clock of waits stands still until the next tick: waits would take longer."""
    tick_seconds = ProcessStops(FakeClock(), scan_interval_seconds).tick_seconds

    assert tick_seconds == scan_interval_seconds / ticks
    assert tick_seconds <= LONGEST_TICK_SECONDS
