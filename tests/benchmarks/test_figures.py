"""A figure and what was measured."""

import pytest

from benchmarks.figures import (
    BenchError,
    Figure,
    Sign,
    Target,
    Unit,
    ratios,
    spelt,
    spelt_medians,
    spelt_spread,
    spelt_target,
)


@pytest.mark.parametrize(("values", "expected"), [((3.0,), 3.0), ((9.0, 1.0, 2.0), 2.0), ((1.0, 2.0, 4.0, 100.0), 3.0)])
def test_the_middle_round_counts(values: tuple[float, ...], expected: float) -> None:
    """One round that somebody disturbed does not move the figure."""
    assert expected == Figure("a.b", "what", "times", values).value


@pytest.mark.parametrize(
    ("sign", "value", "expected"),
    [
        (">=", 0.49, "missed"),
        (">=", 0.5, "met"),
        (">=", 0.51, "met"),
        ("<=", 0.49, "met"),
        ("<=", 0.5, "met"),
        ("<=", 0.51, "missed"),
    ],
)
def test_the_bound_itself_meets_the_target(sign: Sign, value: float, expected: str) -> None:
    """At least and at most include the bound."""
    assert expected == Figure("a.b", "what", "times", (value,), Target(sign, 0.5)).verdict


def test_without_a_target_there_is_no_verdict() -> None:
    """A figure without a target is neither met nor missed."""
    assert Figure("a.b", "what", "times", (1.0,)).verdict == ""


def test_ratios_compare_the_same_round() -> None:
    """Neighbours are compared, whatever the rounds before and after were like."""
    assert (0.5, 2.0) == ratios([100.0, 30.0], [200.0, 15.0])


@pytest.mark.parametrize("below", [0.0, -1.0])
def test_a_ratio_to_nothing_is_refused(below: float) -> None:
    """A reference that is not positive cannot be measured against."""
    with pytest.raises(BenchError, match=f"reference {below:g} is not positive"):
        ratios([1.0], [below])


def test_ratios_need_as_many_references() -> None:
    """A missing round is a mistake, not a shorter list."""
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.519, "times", "0.52"),
        (152_345.6, "per_second", "152,346/s"),
        (0.31, "seconds", "0.31 s"),
        (1.5, "milliseconds", "1.50 ms"),
        (4.761, "microseconds", "4.76 µs"),
        (42.66, "megabytes", "42.7 MB"),
        (1.634, "kibibytes", "1.63 KiB"),
    ],
)
def test_values_carry_their_unit(value: float, unit: Unit, expected: str) -> None:
    """A ratio has none."""
    assert expected == spelt(value, unit)


@pytest.mark.parametrize(("values", "expected"), [((1.0,), ""), ((3.0, 1.0, 2.0), "1.00 - 3.00")])
def test_the_spread_is_from_the_lowest_to_the_highest(values: tuple[float, ...], expected: str) -> None:
    """One round has no spread."""
    assert expected == spelt_spread(values, "milliseconds")


@pytest.mark.parametrize(
    ("target", "unit", "expected"),
    [
        (None, "times", ""),
        (Target(">=", 0.5), "times", ">= 0.5"),
        (Target(">=", 100_000), "per_second", ">= 100,000/s"),
        (Target("<=", 20), "milliseconds", "<= 20 ms"),
    ],
)
def test_targets_are_spelt_without_needless_zeros(target: Target | None, unit: Unit, expected: str) -> None:
    """A target is what somebody wrote down, not what was measured."""
    assert expected == spelt_target(target, unit)


def test_what_stands_behind_a_ratio_are_medians() -> None:
    """Each sample by its middle."""
    assert spelt_medians("per_second", [1000.0, 2000.0, 9000.0], [5000.0]) == "2,000/s / 5,000/s"
