"""The pause after a failed connect."""

from namesrv_runtime.backoff import Backoff, ConnectFailure


def test_pause_is_a_random_part_of_a_bound_that_doubles() -> None:
    """The bound is 0.5 s after the first failure, 1, 2, 4 s after the next ones, and never more than 6 s."""
    backoff = Backoff(base_seconds=0.5, max_seconds=6.0)

    assert [backoff.pause_seconds(count, 1.0) for count in (1, 2, 3, 4, 5, 10_000)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]
    assert [backoff.pause_seconds(3, random_unit) for random_unit in (0.25, 0.0)] == [0.5, 0.0]


def test_failure_tells_how_long_ago_and_when_again() -> None:
    """Who is refused during the pause learns the reason, its age, and how long to wait."""
    failure = ConnectFailure("connection refused", at=100.0, failures=3, retry_at=104.0)

    assert failure.since(101.5) == "connection refused, 1.5 s ago; next attempt in 2.5 s"
