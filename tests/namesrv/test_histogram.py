"""Buckets of a histogram."""

import pytest

from namesrv.histogram import Histogram


@pytest.mark.parametrize(
    ("value", "counts"),
    [(0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.1, [0, 1, 0]), (2.0, [0, 1, 0]), (2.1, [0, 0, 1]), (1e9, [0, 0, 1])],
)
def test_bounds_are_included(value: float, counts: list[int]) -> None:
    """A value is in the first bucket whose bound it does not exceed, or in the last one."""
    histogram = Histogram((1.0, 2.0))

    histogram.observe(value)
    assert histogram.counts == counts

    histogram.observe(0.5)
    assert (histogram.count, histogram.sum) == (2, value + 0.5)
    assert repr(histogram) == f"<Histogram [2 values | sum {value + 0.5:g}]>"
