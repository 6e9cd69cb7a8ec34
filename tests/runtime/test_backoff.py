"""The pause after a failed connect."""

import pytest

from namesrv_runtime.backoff import Backoff, ConnectFailure


@pytest.mark.parametrize(
    ("failures", "random_unit", "pause"),
    [
        (1, 1.0, 0.5),
        (2, 1.0, 1.0),
        (3, 1.0, 2.0),
        (4, 1.0, 4.0),
        (5, 1.0, 6.0),
        (10_000, 1.0, 6.0),
        (3, 0.25, 0.5),
        (3, 0.0, 0.0),
    ],
)
def test_pause_is_a_random_part_of_a_bound_that_doubles(failures: int, random_unit: float, pause: float) -> None:
    """The bound is 0.5 s after the first failure, 1, 2, 4 s after the next ones, and never more than 6 s."""
    assert pause == Backoff(base_seconds=0.5, max_seconds=6.0).pause_seconds(failures, random_unit)


def test_failure_tells_how_long_ago_and_when_again() -> None:
    """Who is refused during the pause learns the reason, its age, and how long to wait."""
    failure = ConnectFailure("connection refused", at=100.0, failures=3, retry_at=104.0)

    assert failure.since(101.5) == "connection refused, 1.5 s ago; next attempt in 2.5 s"
