"""The bucket of each value."""

import pytest

from namesrv.histogram import Histogram


@pytest.mark.parametrize(
    ("value", "counts"),
    [(0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.1, [0, 1, 0]), (2.0, [0, 1, 0]), (2.1, [0, 0, 1]), (1e9, [0, 0, 1])],
)
def test_bounds_are_included(value: float, counts: list[int]) -> None:
    """A value belongs to the first bound that is not below it, and beyond the last to what is above."""
    histogram = Histogram((1.0, 2.0))

    histogram.observe(value)

    assert counts == histogram.counts
    assert (1, value) == (histogram.count, histogram.sum)


def test_values_add_up() -> None:
    """Number and sum are those of all values."""
    histogram = Histogram((1.0,))

    for value in (0.25, 0.5, 3.0):
        histogram.observe(value)

    assert ([2, 1], 3, 3.75) == (histogram.counts, histogram.count, histogram.sum)
    assert "<Histogram [3 values | sum 3.75]>" == repr(histogram)
