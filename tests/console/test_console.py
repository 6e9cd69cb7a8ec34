"""Times on pages: the console's monotonic clock as wall time."""

from namesrv_console.console import Console
from namesrv_console.settings import ConsoleSettings
from tests.support.fake_clock import FakeClock


def test_moments_follow_a_wall_clock_that_was_set() -> None:
    """A suspended machine's monotonic clock stands still; times do not move for less than a second."""
    clock = FakeClock(monotonic=1_000.0, wall=1_700_000_000.0)
    console = Console(ConsoleSettings(), clock=clock)
    clock.step_wall(0.4)
    assert console.moment_ms(990.0) == 1_699_999_990_000

    clock.step_wall(8 * 3600)
    assert console.moment_ms(990.0) == 1_700_028_790_400
