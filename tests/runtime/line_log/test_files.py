"""Files of a line log: choice of the file, closing, and deletion."""

import errno
import fcntl
import gzip
import os
import re
from pathlib import Path

import pytest

from namesrv_runtime.line_log.files import LineFiles, Retention, compress

# 2026-03-01 07:59:50 UTC
WALL = 1_772_351_990.0
DAY = 86_400
HOUR_7 = "dt=2026-03-01/hour=07"
HOUR_8 = "dt=2026-03-01/hour=08"


@pytest.fixture
def files(tmp_path: Path) -> LineFiles:
    """The files of a writer that has not written yet."""
    return LineFiles(tmp_path, "ns-1", "00ff", Retention(keep_days=7, max_bytes=2000), max_file_bytes=100)


def names(root: Path) -> list[str]:
    """All files below a folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def closed(root: Path, folder: str, name: str, *, size: int, modified: float) -> Path:
    """A closed file of an earlier boot."""
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (modified, modified))
    return path


def test_files_are_named_by_hour_writer_boot_and_number(files: LineFiles, tmp_path: Path) -> None:
    """The folder has the lines' UTC hour, by which Spark prunes; the first line opens a file."""
    assert files.is_due(WALL)
    files.begin(WALL)
    files.write(b"a\n")
    files.end()
    files.begin(WALL)

    assert names(tmp_path) == [f"{HOUR_7}/ns-1-00ff-1.jsonl.open", f"{HOUR_7}/ns-1-00ff-2.jsonl.open"]
    assert (tmp_path / HOUR_7 / "ns-1-00ff-1.jsonl.open").read_bytes() == b"a\n"


@pytest.mark.parametrize(
    ("wall", "size", "due"),
    [
        (WALL, 99, False),
        (WALL + 9.9, 0, False),
        (WALL + 10, 0, True),
        # the clock was set back
        (WALL - 3600, 0, True),
        # the maximum size
        (WALL, 100, True),
        # a manual cleanup does not stop the log
        (WALL, None, True),
    ],
)
def test_next_file_is_due(files: LineFiles, tmp_path: Path, wall: float, size: int | None, *, due: bool) -> None:
    """A new file is due in another hour, when the file is full, and when it was deleted."""
    files.begin(WALL)
    files.write(b"x" * (size or 0))
    if size is None:
        (tmp_path / HOUR_7 / "ns-1-00ff-1.jsonl.open").unlink()

    assert files.is_due(wall) == due


def test_partial_line_of_a_failing_disk_is_truncated_later(
    files: LineFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When truncating fails as well, the next write does it first."""
    files.begin(0.0)
    files.write(b"one\n")
    with monkeypatch.context() as disk:
        write = os.write

        def fails(*_: object) -> int:
            raise OSError(errno.EIO, "input/output error")

        def half(fd: int, data: bytes) -> int:
            disk.setattr(os, "write", fails)
            return write(fd, data[:2])

        disk.setattr(os, "write", half)
        disk.setattr(os, "ftruncate", fails)
        for _ in range(2):
            with pytest.raises(OSError, match="input/output"):
                files.write(b"two\n")
    files.write(b"two\n")
    files.end()

    (path,) = tmp_path.rglob("*.open")
    assert path.read_bytes() == b"one\ntwo\n"


def test_closed_file_is_compressed(files: LineFiles, tmp_path: Path) -> None:
    """The compressed file replaces the plain one with its time and lines; after an error the plain one stays."""
    files.begin(WALL)
    files.write(b"one\ntwo\n")
    path = files.end()
    assert path is not None
    os.utime(path, (WALL, WALL))
    packed = path.with_name("ns-1-00ff-1.jsonl.gz")
    packed.mkdir()

    with pytest.raises(OSError, match="directory"):
        compress(path)
    assert names(tmp_path) == [f"{HOUR_7}/ns-1-00ff-1.jsonl.open"]
    assert path.read_bytes() == b"one\ntwo\n"

    packed.rmdir()
    assert packed == compress(path)
    assert names(tmp_path) == [f"{HOUR_7}/ns-1-00ff-1.jsonl.gz"]
    assert gzip.decompress(packed.read_bytes()) == b"one\ntwo\n"
    assert packed.stat().st_mtime == WALL
    # not readable by other users, as the log has the names of brokers and clients
    assert packed.stat().st_mode & 0o777 == 0o640


def test_open_files_of_earlier_boots_are_found(files: LineFiles, tmp_path: Path) -> None:
    """Files of other servers, of a live writer and of this boot are not found."""
    files.begin(WALL)
    files.end()
    files.begin(WALL)
    folder = tmp_path / HOUR_7
    left = folder / "ns-1-0a0a-3.jsonl.open"
    left.write_bytes(b"torn")
    (folder / "ns-2-0a0a-1.jsonl.open").write_bytes(b"another server")
    (folder / "ns-1-b-0a0a-1.jsonl.open").write_bytes(b"another server with a longer name")
    written = folder / "ns-1-0b0b-1.jsonl.open"
    with written.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        assert list(files.left_open()) == [left]


def test_old_files_are_deleted(files: LineFiles, tmp_path: Path) -> None:
    """Files are deleted by age, with their empty folders; files of other servers stay."""
    now = WALL + 10 * DAY
    closed(tmp_path, HOUR_7, "ns-1-00aa-1.jsonl.gz", size=10, modified=now - 7 * DAY - 1)
    closed(tmp_path, HOUR_7, "ns-1-00aa-1.parquet", size=10, modified=now - 7 * DAY - 1)
    closed(tmp_path, HOUR_8, "ns-1-00aa-2.jsonl.gz", size=10, modified=now - 7 * DAY + 1)
    closed(tmp_path, HOUR_8, "ns-1-00aa-3.jsonl.gz", size=10, modified=now - DAY)
    closed(tmp_path, HOUR_8, "ns-2-00aa-1.jsonl.gz", size=10, modified=0)

    removed = files.remove_old(now, 0.0)

    assert ([tmp_path / HOUR_7 / f"ns-1-00aa-1.{ending}" for ending in ("jsonl.gz", "parquet")], False) == removed
    left = ("ns-1-00aa-2", "ns-1-00aa-3", "ns-2-00aa-1")
    assert [f"{HOUR_8}/{name}.jsonl.gz" for name in left] == names(tmp_path)
    assert not (tmp_path / HOUR_7).exists()


def test_file_that_cannot_be_deleted_keeps_no_other_file(files: LineFiles, tmp_path: Path) -> None:
    """The other old files are deleted, and the error is raised afterwards; a link in a circle is left alone."""
    folder = tmp_path / HOUR_7
    undeletable = closed(tmp_path, HOUR_7, "ns-1-00aa-1.jsonl.gz/x", size=10, modified=WALL - 9 * DAY).parent
    os.utime(undeletable, (WALL - 9 * DAY, WALL - 9 * DAY))
    (folder / "ns-1-00aa-2.jsonl.gz").symlink_to("ns-1-00aa-2.jsonl.gz")
    closed(tmp_path, HOUR_7, "ns-1-00aa-3.jsonl.gz", size=10, modified=WALL - 8 * DAY)
    closed(tmp_path, HOUR_7, "ns-1-00aa-4.jsonl.gz", size=10, modified=WALL)

    with pytest.raises(OSError, match=re.escape(str(undeletable))):
        files.remove_old(WALL, 0.0)

    assert names(tmp_path) == [f"{HOUR_7}/ns-1-00aa-1.jsonl.gz/x", f"{HOUR_7}/ns-1-00aa-4.jsonl.gz"]


def test_file_ends_at_a_sixteenth_of_a_smaller_limit(files: LineFiles) -> None:
    """The limit may change while a file is written: the open file counts towards it, and is never removed."""
    files.begin(WALL)
    files.write(b"x" * 20)
    assert (files.room, files.is_due(WALL)) == (80, False)

    files.retention.max_bytes = 16 * 20

    assert (files.room, files.is_due(WALL)) == (0, True)


YEARS = 20 * 365 * DAY


@pytest.mark.parametrize(("ahead", "old"), [(YEARS, 3), (2 * DAY, 3), (-2 * DAY, 1), (-YEARS, 0)])
@pytest.mark.parametrize("is_at_start", [True, False])
def test_step_of_the_wall_clock_deletes_no_file(
    files: LineFiles, tmp_path: Path, ahead: float, old: int, *, is_at_start: bool
) -> None:
    """Files are deleted by age only after the clock has run evenly for the retention time."""
    for number, days in enumerate((0.0, 0.5, 6.5), start=1):
        closed(tmp_path, HOUR_7, f"ns-1-00aa-{number}.jsonl.gz", size=10, modified=WALL - days * DAY)
    if not is_at_start:
        assert files.remove_old(WALL, 0.0) == ([], False)

    for steady in (1.0, 3.0 * DAY, 7.0 * DAY):
        assert files.remove_old(WALL + ahead + steady, steady) == ([], True)
    assert len(names(tmp_path)) == 3
    removed, is_doubted = files.remove_old(WALL + ahead + 7.0 * DAY + 2, 7.0 * DAY + 2)
    assert not is_doubted
    assert len(removed) == old


@pytest.mark.parametrize("ahead", [0, YEARS])
@pytest.mark.parametrize(("limit", "left"), [(40, 3), (39, 2), (20, 1), (9, 0)])
def test_oldest_files_are_deleted_above_the_size_limit(
    files: LineFiles, tmp_path: Path, limit: int, left: int, ahead: int
) -> None:
    """The open file counts and stays; the size limit holds for any clock, because the disk would fill up."""
    for number, folder in enumerate((HOUR_8, HOUR_8, "dt=2026-03-02/hour=00"), start=1):
        closed(tmp_path, folder, f"ns-1-00aa-{number}.jsonl.gz", size=10, modified=WALL)
    files.begin(WALL)
    files.write(b"x" * 10)
    files.retention.max_bytes = limit

    _, is_doubted = files.remove_old(WALL + ahead, 0.0)

    assert is_doubted == (ahead > 0)
    expected = [f"{HOUR_7}/ns-1-00ff-1.jsonl.open", f"{HOUR_8}/ns-1-00aa-1.jsonl.gz"]
    expected += [f"{HOUR_8}/ns-1-00aa-2.jsonl.gz", "dt=2026-03-02/hour=00/ns-1-00aa-3.jsonl.gz"]
    assert names(tmp_path) == [expected[0], *expected[4 - left :]]


def test_oldest_files_of_several_boots_in_an_hour_are_deleted_first(files: LineFiles, tmp_path: Path) -> None:
    """Boot ids are random, so files of different boots are ordered by the time of their last lines."""
    paths = [
        closed(tmp_path, HOUR_7, f"ns-1-{boot}.jsonl.gz", size=10, modified=WALL + number)
        for number, boot in enumerate(("0c0c-9", "0c0c-10", "0a0a-1", "0b0b-1"))
    ]
    files.retention.max_bytes = 10

    assert files.remove_old(WALL, 0.0) == (paths[:3], False)


def test_file_that_has_ended_does_not_count_as_open(files: LineFiles, tmp_path: Path) -> None:
    """At the end of a log, the last file counts once: with its compressed size."""
    kept = closed(tmp_path, HOUR_7, "ns-1-00aa-1.jsonl.gz", size=2000, modified=WALL)
    files.begin(WALL)
    files.write(b"x" * 10)
    files.end()

    assert files.remove_old(WALL, 0.0) == ([], False)
    assert kept.exists()
