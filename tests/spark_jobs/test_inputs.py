"""The files that an INPUT names."""

from pathlib import Path

import pytest

from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import log_files


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder as the daemon writes it, with a few things beside it that are no logs."""
    hour = tmp_path / "dt=2026-03-01" / "hour=07"
    hour.mkdir(parents=True)
    for name in ("a-1-1.jsonl.gz", "a-1-2.jsonl.open", "b-1-1.jsonl", "notes.txt", ".hidden.jsonl", "_SUCCESS"):
        (hour / name).write_text("{}\n")
    return tmp_path


def _names(files: list[str]) -> list[str]:
    return [Path(file).name for file in files]


def test_directory_is_read_to_its_depths(logs: Path) -> None:
    """Every form of a log is found, in order; nothing else is."""
    assert ["a-1-1.jsonl.gz", "a-1-2.jsonl.open", "b-1-1.jsonl"] == _names(log_files([str(logs)]))


def test_file_is_itself_and_files_are_absolute(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark resolves relative names against something of its own."""
    monkeypatch.chdir(logs / "dt=2026-03-01")

    assert [str(logs / "dt=2026-03-01/hour=07/b-1-1.jsonl")] == log_files(["hour=07/b-1-1.jsonl"])


def test_glob_matches_files_and_directories(logs: Path) -> None:
    """Globs that the shell did not expand are expanded here, `**` too."""
    assert ["a-1-1.jsonl.gz"] == _names(log_files([f"{logs}/**/*.gz"]))
    assert 3 == len(log_files([f"{logs}/dt=2026-*"]))


def test_file_that_is_named_twice_is_read_once(logs: Path) -> None:
    """Lines would be counted as duplicates."""
    assert 3 == len(log_files([str(logs), f"{logs}/dt=*", f"{logs}/dt=2026-03-01/hour=07/b-1-1.jsonl"]))


def test_name_with_glob_characters_that_exists_is_that_file(tmp_path: Path) -> None:
    """A file called [1] is no pattern."""
    odd = tmp_path / "x[1].jsonl"
    odd.write_text("{}\n")

    assert [str(odd)] == log_files([str(odd)])


def test_urls_are_left_to_spark(logs: Path) -> None:
    """Only Spark knows how to list a bucket; a file URL is a path."""
    files = log_files(["s3a://logs/dt=2026-03-01/*", f"file://{logs}/dt=2026-03-01/hour=07/b-1-1.jsonl"])

    assert [str(logs / "dt=2026-03-01/hour=07/b-1-1.jsonl"), "s3a://logs/dt=2026-03-01/*"] == files


def test_parquet_directory_is_one_input(tmp_path: Path) -> None:
    """Spark writes a directory and calls it a file."""
    (tmp_path / "day.parquet").mkdir()
    (tmp_path / "day.parquet" / "part-0.parquet").touch()

    assert [str(tmp_path / "day.parquet")] == log_files([str(tmp_path)])


def test_report_of_ours_is_no_input(logs: Path) -> None:
    """A report that was written below the logs holds Parquet and JSON, and none of it is a log."""
    report = logs / "report"
    (report / "intervals").mkdir(parents=True)
    (report / "run.json").write_text('{"program": "namesrv-staleness"}')
    (report / "intervals" / "part-0.parquet").touch()

    assert 3 == len(log_files([str(logs)]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("-", "-: standard input is not read"),
        ("", "'': INPUT is empty"),
        ("{logs}/nothing", "{logs}/nothing: no such file or directory"),
        ("{logs}/*.gz", "{logs}/*.gz: no such file or directory"),
        ("{logs}/empty", "{logs}/empty: contains no log (files ending with"),
        ("{logs}/dt=2026-03-01/hour=07/notes.txt", "{logs}/dt=2026-03-01/hour=07/notes.txt: not a log;"),
    ],
)
def test_what_cannot_be_read_is_named(logs: Path, given: str, said: str) -> None:
    """The path is in the message, as it was given."""
    (logs / "empty").mkdir()

    with pytest.raises(UsageError) as raised:
        log_files([given.format(logs=logs)])

    assert str(raised.value).startswith(said.format(logs=logs))
