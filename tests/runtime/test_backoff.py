"""Delays after failed connects."""

from namesrv_runtime.backoff import Backoff, ConnectFailure


def test_delay_is_random_below_a_doubling_bound() -> None:
    """The bound is 0.5 s after the first failure, then 1, 2, 4 and at most 6 s."""
    backoff = Backoff(base_seconds=0.5, max_seconds=6.0)

    assert [backoff.pause_seconds(count, 1.0) for count in (1, 2, 3, 4, 5, 10_000)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]
    assert [backoff.pause_seconds(3, random_unit) for random_unit in (0.25, 0.0)] == [0.5, 0.0]


def test_failure_contains_its_age_and_the_remaining_delay() -> None:
    """A call refused during the delay gets the reason, its age, and the remaining time."""
    failure = ConnectFailure(OSError(), "connection refused", at=100.0, failures=3, retry_at=104.0)

    assert failure.since(101.5) == "connection refused, 1.5 s ago; next attempt in 2.5 s"
