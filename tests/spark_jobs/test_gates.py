"""Gates (--fail-if): conditions under which the command fails."""

from typing import Any

import pytest

from namesrv_spark_jobs.command.gates import judge, parse_gate
from namesrv_spark_jobs.options import Options
from tests.support.staleness_sample import empty_summary, sample_summary


def _failed(*texts: str, max_bad_ratio: float | None = None, summary: dict[str, Any] | None = None) -> list[str]:
    """The failed gates of the sample: registry p99 128 s, client p95 155 s, 2 false evictions, 3 bad lines."""
    verdicts = judge(summary or sample_summary(), [parse_gate(text) for text in texts], max_bad_ratio)
    return [verdict.says for verdict in verdicts if verdict.failed]


@pytest.mark.parametrize(
    ("texts", "failures"),
    [
        # Durations without a unit are in seconds; `p99` is the registry's.
        ("p99>127, registry.p99>127s, registry.p99 > 127999ms, p99>=128, p99.9>128, registry.p999>128, max<=129s", 7),
        ("p99>127.9s, p99<129 s, p99>127999ms, p99<2.2m, p99>0.0355h, p99<0.0356 h, p99>0", 7),
        ("client.p95>2.5m, client.p95<3m, lower.p50>70, mean>110, divergence.longest>9s, divergence.total>62s", 6),
        # Counts have no unit.
        ("false>1, over_bound>0, over_bound>=1, censored>11, exposed_pulls>430, evictions<100, near_misses>4", 7),
        ("lines>120344, bad>2, truncated>0, dropped>6, duplicates>11, clock_steps>0, exposed>191, divergence>8", 8),
        # The limit itself is allowed.
        ("p99>128, p99<128, p99>3m, client.p95>155, divergence.total>63", 0),
        ("false>2, replay>0, bad>3, censored<12, lines>120345, dropped>7, clock_steps>1, divergence>9", 0),
    ],
)
def test_gate_that_is_met_fails_the_run(texts: str, failures: int) -> None:
    """Gates for durations, counts and input fail the run."""
    assert len(_failed(*texts.split(", "))) == failures


def test_message_of_a_gate_has_the_value() -> None:
    """The message has the value in seconds, the usual unit of gates, and in the notation of the report."""
    assert _failed("p99>2m", "false>0") == ["p99>2m: registry.p99 is 128 s (128 s)", "false>0: false is 2"]
    many = sample_summary()
    many["exposed_pulls"]["total"] = many["input"]["bad"] = 12_345_678
    many["divergence"]["total_ms"] = 1_234_567_890
    assert _failed("exposed_pulls>9", "divergence.total>1h", max_bad_ratio=0.1, summary=many) == [
        "exposed_pulls>9: exposed_pulls is 12,345,678",
        "divergence.total>1h: divergence.total is 1,234,567.89 s (14.3 d)",
        "max-bad-ratio 0.1: 12,345,678 of 120,345 lines are bad (10258.5716%)",
    ]


def test_gate_without_anything_to_measure_lets_the_run_pass() -> None:
    """A log without evictions passes all gates."""
    quiet = empty_summary()

    assert _failed("p99>1", "client.p50>1", "false>0", "over_bound>0", summary=quiet) == []
    assert _failed("evictions<1", summary=quiet) == ["evictions<1: evictions is 0"]


@pytest.mark.parametrize(
    ("options", "events", "message"),
    [
        (
            Options(clusters=("nope",)),
            {"start": 1},
            "no heartbeat of cluster nope; the options leave out 28 of 29 lines",
        ),
        (
            Options(clusters=("a", "b"), nameservers=("ns-9",)),
            {},
            "no heartbeat of cluster a or b and NameServer ns-9; the options leave out 28 of 29 lines",
        ),
        (
            Options(since_ms=1_798_761_600_000),
            {"scan": 3},
            "no heartbeat since 2027-01-01 00:00:00 UTC; the options leave out 28 of 29 lines",
        ),
        (Options(topics=("t9",)), {"heartbeat": 3}, "no line of topic t9; the options leave out 28 of 29 lines"),
        # A finished report, whose options are unknown.
        (Options(), {}, "no heartbeat; the options leave out 28 of 29 lines"),
    ],
)
def test_gate_fails_without_a_line_that_the_options_select(
    options: Options, events: dict[str, int], message: str
) -> None:
    """Without selected lines, as for a misspelt cluster, gates fail; a run without gates succeeds."""
    summary = empty_summary()
    summary["input"] |= {"events": events, "lines": 29, "left_out": 28}

    verdicts = judge(summary, [parse_gate("p99>1")], options=options)

    assert [verdict.says for verdict in verdicts if verdict.failed] == [f"selection: {message}"]
    assert judge(summary, [], options=options) == []
    summary["input"]["events"] = {"heartbeat": 1, "served": 1}
    assert [verdict.failed for verdict in judge(summary, [parse_gate("p99>1")], options=options)] == [False]


@pytest.mark.parametrize(("limit", "failures"), [(0.0, 1), (0.00002, 1), (3 / 120_345, 0), (0.000025, 0), (1.0, 0)])
def test_bad_ratio_is_of_all_lines(limit: float, failures: int) -> None:
    """The ratio is of all lines: 3 of 120,345 are a little less than 25 in a million."""
    assert len(_failed(max_bad_ratio=limit)) == failures


@pytest.mark.parametrize(
    ("texts", "failures"),
    [
        # Before: registry p99 120 s, 1 false eviction, no near miss, and nothing measured at clients.
        ("p99>+7s, p99>+7999ms, p99>=+8s, p99>+6%, false>+0, false>+99%, near_misses>+1000%", 7),
        ("p99>+8s, p99>+7%, false>+1, false>+100%, evictions>+0, client.p99>+0, lines>+0%", 0),
    ],
)
def test_gate_of_a_change_compares_two_reports(texts: str, failures: int) -> None:
    """The limit is a difference or a percentage of the value before; from zero, any increase exceeds any percentage."""
    before = sample_summary()
    before["registry"]["all"]["p99"] = 120_000
    before["client"]["all"]["p99"] = None
    before["false_evictions"]["count"] = 1
    before["near_misses"]["count"] = 0

    gates = [parse_gate(text, changes=True) for text in texts.split(", ")]

    assert sum(verdict.failed for verdict in judge(sample_summary(), gates, before=before)) == failures


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition; write MEASURE>LIMIT, for example p99>45 or false>0"),
        ("p99", "is not a condition"),
        ("p99=45", "is not a condition"),
        ("p98>45", "'p98' is not a measure; choose from registry.p50,"),
        ("client.false>0", "'client.false' is not a measure"),
        ("p99>45x", "not a valid duration: 45x (for example 45, 45s, 1500ms, 2m or 1h)"),
        *(
            (f"p99>{limit}", f"not a valid duration: {limit}")
            for limit in ("s", "1d", "1e3", "45 seconds", "NaN", "inf")
        ),
        ("p99>-1", "is not a condition"),
        ("p99>+5s", "'p99>+5s': limits of a change need `compare`"),
        ("p99>5%", "'p99>5%': percentages need a +; write registry.p99>+5%"),
        ("false>0s", "'false>0s': '0s' is not a number"),
    ],
)
def test_invalid_gate_is_refused(text: str, message: str) -> None:
    """A misspelt gate is refused before anything is read."""
    with pytest.raises(ValueError, match=r".+") as raised:
        parse_gate(text)

    assert message in str(raised.value)
