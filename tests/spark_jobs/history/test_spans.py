"""Spans of time, their notation, and the files of a log that they need."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from namesrv_spark_jobs.history.hours import LogsError, all_hours, last_hour
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.reading.files import files_of
from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, MOST_MS, Span, tick_texts, written
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.permissions import unprivileged

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-03-01", 0),
        ("2026-03-01T00:01", MINUTE_MS),
        ("2026-03-01T00:00:01.250", 1_250),
        ("2026-03-01T08:00:00+08:00", 0),
        ("1772323200000", 0),
    ],
)
def test_moment_is_utc_without_an_offset(text: str, ms: int) -> None:
    """A moment may lack its time or seconds."""
    assert moment_ms(text) == MIDNIGHT_MS + ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1", "9999-01-01", "1900-01-01", "12345678", "9" * 16])
def test_invalid_moment_is_refused(text: str) -> None:
    """The message has the invalid text."""
    with pytest.raises(ValueError, match=r"not a .*time") as refused:
        moment_ms(text)
    assert repr(text) in str(refused.value)


def test_a_moment_is_written_as_it_is_read() -> None:
    """A moment has milliseconds only if they are not zero."""
    assert [written(MIDNIGHT_MS + ms) for ms in (0, 7)] == ["2026-03-01T00:00:00", "2026-03-01T00:00:00.007"]


def test_a_span_is_a_second_to_a_week() -> None:
    """Zooming stays within these limits."""
    for length in (0, -1, 999):
        with pytest.raises(ValueError, match="not after"):
            Span.checked(MIDNIGHT_MS, MIDNIGHT_MS + length)
    with pytest.raises(ValueError, match=r"^2026-03-01T00:00:00 to 2026-03-08T00:00:00\.001 is longer than 7 days$"):
        Span.checked(MIDNIGHT_MS, MIDNIGHT_MS + MOST_MS + 1)
    week = Span.checked(MIDNIGHT_MS, MIDNIGHT_MS + MOST_MS)

    assert week == week.zoomed(2)
    assert week.zoomed(3 / 7) == Span(MIDNIGHT_MS + 2 * DAY_MS, MIDNIGHT_MS + 5 * DAY_MS)
    assert week.moved(0.5) == Span(MIDNIGHT_MS + MOST_MS // 2, MIDNIGHT_MS + MOST_MS // 2 * 3)


@pytest.mark.parametrize(
    ("length_ms", "texts"),
    [
        (1_000, ["03-01 00:00:00.0", "00:00:00.2", "00:00:00.4", "00:00:00.6", "00:00:00.8"]),
        (5 * MINUTE_MS, ["03-01 00:00", "00:01", "00:02", "00:03", "00:04"]),
        (2 * DAY_MS, ["03-01 00:00", "06:00", "12:00", "18:00", "03-02 00:00", "06:00", "12:00", "18:00"]),
    ],
)
def test_an_axis_has_round_ticks(length_ms: int, texts: list[str]) -> None:
    """An axis has at most eight ticks, each with the parts of date and time that differ from the tick before."""
    assert [text for _, text in tick_texts(Span(MIDNIGHT_MS, MIDNIGHT_MS + length_ms))] == texts


def log_of_hours(folder: Path, *hours: str) -> Path:
    """A log with a closed file in each of these folders."""
    for hour in hours:
        place = folder / hour
        place.mkdir(parents=True)
        (place / "ns-1-b-1.jsonl.gz").write_bytes(b"12345")
    return folder


def test_only_folders_of_the_hours_are_read(tmp_path: Path) -> None:
    """Also read are the hour before, since lines are written after their moment, and files outside of such folders."""
    log_of_hours(tmp_path, *(f"dt=2026-03-01/hour={hour:02}" for hour in range(6)), "dt=2026-02-28/hour=23", "dt=x")
    (tmp_path / "dt=2026-03-01" / "hour=04" / "ns-1-b-2.jsonl.open").touch()
    (tmp_path / "dt=2026-03-01" / "hour=04" / "notes.txt").touch()
    (tmp_path / "copied.jsonl").touch()
    # Opening a named pipe would block for ever.
    os.mkfifo(tmp_path / "pipe.jsonl")
    span = Span(MIDNIGHT_MS + 3 * HOUR_MS + 1, MIDNIGHT_MS + 4 * HOUR_MS + 1)

    found = [str(Path(file).relative_to(tmp_path.resolve())) for file in files_of([str(tmp_path)], span)]

    of_day = [f"dt=2026-03-01/hour={file}" for file in ("03/ns-1-b-1.jsonl.gz", "04/ns-1-b-1.jsonl.gz")]
    before = "dt=2026-03-01/hour=02/ns-1-b-1.jsonl.gz"
    still_open = "dt=2026-03-01/hour=04/ns-1-b-2.jsonl.open"
    assert sorted(["copied.jsonl", before, *of_day, still_open, "dt=x/ns-1-b-1.jsonl.gz"]) == found
    assert last_hour([str(tmp_path)]) == Span(MIDNIGHT_MS + 5 * HOUR_MS, MIDNIGHT_MS + 6 * HOUR_MS)
    hours = all_hours([str(tmp_path)])
    assert hours is not None
    assert hours.to_ms == MIDNIGHT_MS + 6 * HOUR_MS
    assert hours.from_ms < MIDNIGHT_MS + 3 * HOUR_MS


def test_hours_of_gathered_logs_and_of_a_part_of_a_log_are_found(tmp_path: Path) -> None:
    """An input may have a log or a data directory for each server, or be the directory of a single day."""
    log_of_hours(tmp_path / "all" / "ns-1", "dt=2026-03-01/hour=02")
    log_of_hours(tmp_path / "data" / "heartbeats", "dt=2026-03-01/hour=04")
    (tmp_path / "all" / "ns-2").symlink_to(tmp_path / "data")

    assert all_hours([str(tmp_path / "all")]) == Span(MIDNIGHT_MS + 2 * HOUR_MS, MIDNIGHT_MS + 5 * HOUR_MS)
    data = tmp_path / "data"
    for part in (data, data / "heartbeats" / "dt=2026-03-01"):
        assert all_hours([str(part)]) == Span(MIDNIGHT_MS + 4 * HOUR_MS, MIDNIGHT_MS + 5 * HOUR_MS)


@pytest.mark.parametrize("closed", ["heartbeats", "heartbeats/dt=2026-03-01/hour=02", "file"])
def test_logs_without_permission_are_an_error(closed: str) -> None:
    """Logs are readable by the server's group only; without them the past would lack that server."""
    # Only the user of the tests can enter the directories of pytest.
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        log_of_hours(folder / "heartbeats", "dt=2026-03-01/hour=02")
        file = next(folder.rglob("*.gz"))
        place = file if closed == "file" else folder / closed
        place.chmod(0)
        hour = Span(MIDNIGHT_MS + 2 * HOUR_MS, MIDNIGHT_MS + 3 * HOUR_MS)

        with unprivileged(), pytest.raises(LogsError, match=f"{place}: permission denied"):
            files_of([name], hour)

        place.chmod(0o755)


def test_directory_below_one_without_permission_is_not_missing() -> None:
    """Without permission the existence of logs is unknown; a file in place of a directory has no logs."""
    with TemporaryDirectory() as name:
        logs = Path(name, "logs")
        logs.touch()
        hour = Span(MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)
        for missing in (logs, logs / "below"):
            with pytest.raises(LogsError, match=f"{missing}: no such directory"):
                files_of([str(missing)], hour)
        Path(name).chmod(0)

        with unprivileged(), pytest.raises(LogsError, match=f"{logs}: permission denied"):
            files_of([str(logs)], hour)

        Path(name).chmod(0o755)


def test_span_with_too_large_logs_is_refused(tmp_path: Path) -> None:
    """The size is checked before any file is opened; a missing directory is an error, too."""
    log_of_hours(tmp_path, "dt=2026-03-01/hour=00")
    with (tmp_path / "dt=2026-03-01" / "hour=00" / "large.jsonl").open("wb") as large:
        large.truncate(257 << 20)
    span = Span(MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS)

    with pytest.raises(LogsError, match="257 MiB, limit 256 MiB; choose a shorter time"):
        files_of([str(tmp_path)], span)
    with pytest.raises(LogsError, match="absent: no such directory"):
        files_of([str(tmp_path / "absent")], span)
    assert last_hour([str(tmp_path / "absent")]) is None
    assert all_hours([str(tmp_path / "absent")]) is None
