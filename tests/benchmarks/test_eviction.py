"""Many deaths become a few rounds."""

from benchmarks.eviction import in_rounds


def test_a_round_is_the_median_of_those_that_follow_one_another() -> None:
    """One slow death in a round does not move it; a last, shorter round counts, too."""
    assert [2.0, 5.0, 7.5] == in_rounds([1.0, 2.0, 90.0, 5.0, 5.0, 4.0, 7.0, 8.0], each=3)
