"""A figure and what was measured."""

import pytest

from benchmarks.figures import BenchError, Figure, Target, ratios, spelt, spelt_medians, spelt_spread, spelt_target


def test_the_middle_round_counts() -> None:
    """One round that somebody disturbed does not move the figure."""
    rounds = ((3.0,), (9.0, 1.0, 2.0), (1.0, 2.0, 4.0, 100.0))

    assert [3.0, 2.0, 3.0] == [Figure("a.b", "what", "times", values).value for values in rounds]


def test_the_bound_itself_meets_the_target() -> None:
    """At least and at most include the bound; without a target there is no verdict."""

    def verdicts(target: Target | None) -> list[str]:
        return [Figure("a.b", "what", "times", (value,), target).verdict for value in (0.49, 0.5, 0.51)]

    assert ["missed", "met", "met"] == verdicts(Target(">=", 0.5))
    assert ["met", "met", "missed"] == verdicts(Target("<=", 0.5))
    assert ["", "", ""] == verdicts(None)


def test_ratios_compare_the_same_round() -> None:
    """Neighbours, whatever the rounds before and after were like; not to nothing, and not to fewer rounds."""
    assert (0.5, 2.0) == ratios([100.0, 30.0], [200.0, 15.0])
    for below in (0.0, -1.0):
        with pytest.raises(BenchError, match=f"reference {below:g} is not positive"):
            ratios([1.0], [below])
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_figures_are_spelt_for_people() -> None:
    """Values carry their unit, a ratio has none; the spread of one round is none; targets have no needless zeros."""
    assert "0.52" == spelt(0.519, "times")
    assert "152,346/s" == spelt(152_345.6, "per_second")
    assert "0.31 s" == spelt(0.31, "seconds")
    assert "1.50 ms" == spelt(1.5, "milliseconds")
    assert "4.76 µs" == spelt(4.761, "microseconds")
    assert "42.7 MB" == spelt(42.66, "megabytes")
    assert "1.63 KiB" == spelt(1.634, "kibibytes")
    assert ["", "1.00 - 3.00"] == [spelt_spread(values, "milliseconds") for values in ((1.0,), (3.0, 1.0, 2.0))]
    assert ["", ">= 0.5"] == [spelt_target(target, "times") for target in (None, Target(">=", 0.5))]
    assert ">= 100,000/s" == spelt_target(Target(">=", 100_000), "per_second")
    assert "<= 20 ms" == spelt_target(Target("<=", 20), "milliseconds")
    assert "2,000/s / 5,000/s" == spelt_medians("per_second", [1000.0, 2000.0, 9000.0], [5000.0])
