"""Log files: whether their gzip is whole, their paths and short names."""

import gzip
import random
from pathlib import Path

import pytest

from namesrv_spark_jobs.log_files import literal, short_name, truncated

# longer than the sample, and as hard to compress all along
LINES = "".join(f'{{"seq":{number},"x":{random.Random(number).random()}}}\n' for number in range(60_000)).encode()


def written(path: Path, content: bytes) -> str:
    """The path of a file with this content."""
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("content", [LINES, LINES[:1000], b""], ids=["long", "short", "empty"])
def test_a_whole_file_is_whole(tmp_path: Path, content: bytes) -> None:
    """Whatever its length."""
    assert [] == truncated([written(tmp_path / "a.jsonl.gz", gzip.compress(content))])


@pytest.mark.parametrize("missing", [1, 4, 8, 9, 1000])
@pytest.mark.parametrize("content", [LINES, LINES[:20_000]], ids=["long", "short"])
def test_a_cut_file_is_told(tmp_path: Path, content: bytes, missing: int) -> None:
    """However little is missing."""
    path = written(tmp_path / "a.jsonl.gz", gzip.compress(content)[:-missing])

    assert [path] == truncated([path])


def test_what_is_no_gzip_at_all_is_told(tmp_path: Path) -> None:
    """An empty file, and text under a wrong name."""
    paths = [written(tmp_path / "a.jsonl.gz", b""), written(tmp_path / "b.jsonl.gz", LINES)]

    assert paths == truncated(paths)


def test_a_second_member_is_read_to_its_end(tmp_path: Path) -> None:
    """Two compressed files written one behind the other are one; cut in the second, they are cut."""
    both = gzip.compress(LINES) + gzip.compress(LINES[:5000])
    whole, cut = written(tmp_path / "a.jsonl.gz", both), written(tmp_path / "b.jsonl.gz", both[:-20])

    assert [cut] == truncated([whole, cut])


def test_other_files_are_not_looked_at() -> None:
    """Plain ones, and those that only Spark can open."""
    assert [] == truncated(["/nowhere/a.jsonl", "s3a://bucket/a.jsonl.gz"])


def test_a_path_is_no_pattern() -> None:
    """Brackets in a folder's name would be one to Spark."""
    assert [r"/logs\[1\]/a\*b.jsonl", "s3a://bucket/dt=*/"] == [
        literal("/logs[1]/a*b.jsonl"),
        literal("s3a://bucket/dt=*/"),
    ]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/x/dt=2026-03-01/hour=07/ns-1-b-1.jsonl.gz", "dt=2026-03-01/hour=07/ns-1-b-1.jsonl.gz"),
        ("/x/y/a.jsonl", "a.jsonl"),
        ("file:///x/with%20space.jsonl", "with space.jsonl"),
    ],
)
def test_short_names(path: str, short: str) -> None:
    """The base name with the folders of its day and hour."""
    assert short == short_name(path)
