"""Gates: conditions under which the command fails."""

from typing import Any

import pytest

from namesrv_spark_jobs.command.gates import judge, parse_gate
from tests.support.staleness_sample import empty_summary, sample_summary


def _failed(*texts: str, max_bad_ratio: float | None = None, summary: dict[str, Any] | None = None) -> list[str]:
    """The gates that fail on the sample: registry p99 128 s, client p95 155 s, 2 false evictions, 3 bad lines."""
    verdicts = judge(summary or sample_summary(), [parse_gate(text) for text in texts], max_bad_ratio)
    return [verdict.says for verdict in verdicts if verdict.failed]


@pytest.mark.parametrize(
    ("texts", "failures"),
    [
        # durations are seconds unless they say otherwise; `p99` is the registry's
        ("p99>127, registry.p99>127s, registry.p99 > 127999ms, p99>=128, p99.9>128, registry.p999>128, max<=129s", 7),
        ("p99>127.9s, p99<129 s, p99>127999ms, p99<2.2m, p99>0.0355h, p99<0.0356 h, p99>0", 7),
        ("client.p95>2.5m, client.p95<3m, lower.p50>70, mean>110, divergence.longest>9s, divergence.total>62s", 6),
        # counts have no unit
        ("false>1, over_bound>0, over_bound>=1, censored>11, exposed_pulls>430, evictions<100, near_misses>4", 7),
        ("lines>120344, bad>2, truncated>0, dropped>6, duplicates>11, clock_steps>0, exposed>191, divergence>8", 8),
        # a limit is still allowed
        ("p99>128, p99<128, p99>3m, client.p95>155, divergence.total>63", 0),
        ("false>2, replay>0, bad>3, censored<12, lines>120345, dropped>7, clock_steps>1, divergence>9", 0),
    ],
)
def test_gate_that_is_met_fails_the_run(texts: str, failures: int) -> None:
    """Whatever it measures."""
    assert failures == len(_failed(*texts.split(", ")))


def test_gate_says_what_it_found() -> None:
    """In seconds, as it was probably written, and as people say it."""
    assert ["p99>2m: registry.p99 is 128 s (128 s)", "false>0: false is 2"] == _failed("p99>2m", "false>0")


def test_gate_without_anything_to_measure_lets_the_run_pass() -> None:
    """Nobody was evicted: that is good news."""
    quiet = empty_summary()

    assert [] == _failed("p99>1", "client.p50>1", "false>0", "over_bound>0", summary=quiet)
    assert ["evictions<1: evictions is 0"] == _failed("evictions<1", summary=quiet)


@pytest.mark.parametrize(("limit", "failures"), [(0.0, 1), (0.00002, 1), (0.000025, 0), (1.0, 0)])
def test_bad_ratio_is_of_all_lines(limit: float, failures: int) -> None:
    """3 of 120,345 are a little less than 25 in a million."""
    assert failures == len(_failed(max_bad_ratio=limit))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a condition; write MEASURE>LIMIT, for example p99>45 or false>0"),
        ("p99", "is not a condition"),
        ("p99=45", "is not a condition"),
        ("p98>45", "'p98' is not a measure; choose from registry.p50, registry.p90,"),
        ("client.false>0", "'client.false' is not a measure"),
        ("p99>45x", "not a valid duration: 45x (for example 45, 45s, 1500ms, 2m or 1h)"),
        *(
            (f"p99>{limit}", f"not a valid duration: {limit}")
            for limit in ("s", "1d", "1e3", "45 seconds", "NaN", "inf")
        ),
        ("p99>-1", "is not a condition"),
        ("false>0s", "'false>0s': '0s' is not a number"),
    ],
)
def test_what_is_no_gate_is_refused(text: str, said: str) -> None:
    """Before anything is read: a gate that is misspelt must not pass."""
    with pytest.raises(ValueError, match=r".+") as raised:
        parse_gate(text)

    assert said in str(raised.value)
