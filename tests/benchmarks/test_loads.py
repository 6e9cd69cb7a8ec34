"""The line that load prints is read."""

import pytest

from benchmarks.figures import BenchError
from benchmarks.loads import Load, read_load

LINE = (
    '{"mode":"route","header":"json","connections":200,"depth":1,"seconds":2.000,"answers":200000,'
    '"answers_per_second":100000,"bytes_per_second":1,"p50_us":900.5,"p99_us":2100.0,"p999_us":3000.0,'
    '"max_us":4000.0,"oldest_unanswered_us":12.0,"failed":3}\n'
)


def test_a_line_of_load_is_read() -> None:
    """The server's computing time is shared out among the answers."""
    expected = Load(
        answers=200_000,
        answers_per_second=100_000,
        p50_us=900.5,
        p99_us=2100,
        longest_us=4000,
        failed=3,
        computing_us=9.0,
    )

    assert expected == read_load(LINE, computing_seconds=1.8)


def test_a_question_without_answer_counts_as_waiting() -> None:
    """Who still waits at the end may have waited longest."""
    line = LINE.replace('"oldest_unanswered_us":12.0', '"oldest_unanswered_us":90000.0')

    assert read_load(line, 1.0).longest_us == 90_000


@pytest.mark.parametrize("line", ["", "load: done\n", "[]", '{"answers":1}', LINE.replace(":200000,", ":0,")])
def test_anything_else_is_refused(line: str) -> None:
    """No figure is made of half a line, or of no answers."""
    with pytest.raises(BenchError, match="load printed"):
        read_load(line, 1.0)
