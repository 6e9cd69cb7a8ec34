"""Log files: the files of an INPUT, and truncated gzip files."""

import gzip
import os
import random
from pathlib import Path

import pytest

from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import log_files, truncated
from tests.support.spark_logs import write_plain

ALL = ["a-1-1.jsonl.gz", "a-1-2.jsonl.open", "b-1-1.jsonl"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder like the daemon's, with other files beside the logs, and with a report."""
    hour = tmp_path / "dt=2026-03-01" / "hour=07"
    hour.mkdir(parents=True)
    for name in (*ALL, "notes.txt", ".hidden.jsonl", "_SUCCESS"):
        (hour / name).write_text("{}\n")
    report = tmp_path / "report"
    (report / "intervals").mkdir(parents=True)
    (report / "run.json").write_text('{"program": "namesrv-staleness"}')
    (report / "intervals" / "part-0.parquet").touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "found"),
    [
        # Logs of every form are found in all folders, in order; other files are not.
        (["{logs}"], ALL),
        # Globs that the shell did not expand are expanded, also `**`.
        (["{logs}/**/*.gz"], ALL[:1]),
        (["{logs}/dt=2026-*"], ALL),
        # Spark would resolve relative names against its own directory.
        (["dt=2026-03-01/hour=07/b-1-1.jsonl"], [ALL[2]]),
        # A file that is named twice would count as duplicate lines.
        (["{logs}", "{logs}/dt=*", "{logs}/dt=2026-03-01/hour=07/b-1-1.jsonl"], ALL),
        # A file URL is a path; only Spark can list a bucket.
        (["s3a://logs/dt=2026-03-01/*", "file://{logs}/dt=2026-03-01/hour=07/b-1-1.jsonl"], [ALL[2], "*"]),
    ],
)
def test_inputs_are_files_directories_globs_and_urls(
    logs: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], found: list[str]
) -> None:
    """Files, directories, globs and URLs give each file once."""
    monkeypatch.chdir(logs)
    files = log_files([text.format(logs=logs) for text in given])

    assert [Path(file).name for file in files] == found
    assert all(file.startswith((f"{logs}/dt=2026-03-01/hour=07/", "s3a://logs/dt=2026-03-01/")) for file in files)


def test_links_to_directories_are_followed_once(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Linked directories are read once, also with two links or a link to a parent directory."""
    gathered = tmp_path_factory.mktemp("gathered")
    for name in ("ns-1", "ns-1-again"):
        (gathered / name).symlink_to(logs)
    (logs / "dt=2026-03-01" / "upwards").symlink_to(logs)

    found = [Path(file) for file in log_files([str(gathered)])]

    assert found == [gathered / "ns-1" / "dt=2026-03-01" / "hour=07" / name for name in ALL]


def test_odd_names(tmp_path: Path) -> None:
    """The name of an existing file is no pattern, as `[1]`; a directory of Parquet files is one table."""
    (tmp_path / "x[1].jsonl").write_text("{}\n")
    (tmp_path / "day.parquet").mkdir()
    (tmp_path / "day.parquet" / "part-0.parquet").touch()

    assert log_files([f"{tmp_path}/x[1].jsonl"]) == [f"{tmp_path}/x[1].jsonl"]
    assert log_files([str(tmp_path)]) == [f"{tmp_path}/day.parquet", f"{tmp_path}/x[1].jsonl"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("-", "-: standard input is not read"),
        ("", "'': INPUT is empty"),
        ("{logs}/nothing", "{logs}/nothing: no such file or directory"),
        # A user without an account has no home directory.
        ("~nosuchuser/logs", "~nosuchuser/logs: no such file or directory"),
        ("{logs}/*.gz", "{logs}/*.gz: no such file or directory"),
        ("{logs}/empty", "{logs}/empty: contains no log (files ending with"),
        ("{logs}/dt=2026-03-01/hour=07/notes.txt", "{logs}/dt=2026-03-01/hour=07/notes.txt: not a log;"),
        ("HTTPS://host/logs", "HTTPS://host/logs: Spark cannot list files over HTTP; download the logs"),
    ],
)
def test_unreadable_input_is_named(logs: Path, given: str, message: str) -> None:
    """The error has the path as given."""
    with pytest.raises(UsageError) as raised:
        log_files([given.format(logs=logs)])

    assert str(raised.value).startswith(message.format(logs=logs))


def test_named_pipe_is_not_read(logs: Path) -> None:
    """Opening a named pipe would wait for a writer for ever."""
    pipe = logs / "dt=2026-03-01" / "hour=07" / "p.jsonl"
    os.mkfifo(pipe)
    skipped: list[str] = []

    assert [Path(file).name for file in log_files([str(logs)], skipped.append)] == ALL
    assert skipped == [f"skipped {pipe}: not a regular file"]
    with pytest.raises(UsageError, match=f"{pipe}: not a regular file"):
        log_files([str(pipe)])


def test_audit_trail_beside_a_heartbeat_log_is_not_read(tmp_path: Path) -> None:
    """The audit trail in a data directory is not read; a directory `audit` without a heartbeat log beside it is."""
    trail, log = tmp_path / "ns-1" / "audit" / "a.jsonl", tmp_path / "ns-1" / "heartbeats" / "b.jsonl"
    other = tmp_path / "ns-2" / "audit" / "c.jsonl"
    for file in (trail, log, other):
        file.parent.mkdir(parents=True)
        file.touch()

    assert [str(log), str(other)] == log_files([str(tmp_path)])


def test_truncated_file_is_found(tmp_path: Path) -> None:
    """Only truncated gzip files are found; plain files, and files that only Spark can open, are not checked."""
    dice = random.Random(1)
    # Longer than the sample, and equally hard to compress everywhere.
    lines = "".join(f'{{"seq":{number},"x":{dice.random()}}}\n' for number in range(60_000)).encode()
    whole = {content: gzip.compress(content) for content in (lines, lines[:20_000], lines[:5000], b"")}
    cases = [
        *((packed, True) for packed in whole.values()),
        # However few bytes are missing.
        *((whole[content][:-cut], False) for content in (lines, lines[:20_000]) for cut in (1, 4, 8, 9, 1000)),
        # Not gzip.
        *((b"", False), (lines, False)),
        # Two concatenated gzip files are one valid file.
        (whole[lines] + whole[lines[:5000]], True),
        ((whole[lines] + whole[lines[:5000]])[:-20], False),
        # Trailing bytes that are not gzip, such as padding of a block.
        *((packed + after, True) for packed in whole.values() for after in (bytes(512), b"x")),
        # The beginning of another gzip file.
        *((whole[lines] + whole[lines[:5000]][:length], False) for length in (1, 2, 12)),
    ]
    for number, (content, is_whole) in enumerate(cases):
        path = tmp_path / f"{number}.jsonl.gz"
        path.write_bytes(content)
        found = truncated([str(path), "/nowhere/a.jsonl", "s3a://bucket/a.jsonl.gz"])
        assert ([] if is_whole else [str(path)]) == found, number


def test_folder_that_is_removed_meanwhile_is_left_out(tmp_path: Path) -> None:
    """A folder that retention removes during the search is no error."""
    kept = write_plain(tmp_path / "new", "ns-1-boot-1-1.jsonl", ["{}"])
    old = tmp_path / "old"
    old.mkdir()
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")

    assert log_files([str(tmp_path)], lambda _: old.rmdir()) == [str(kept)]
