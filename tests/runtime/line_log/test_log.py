"""The line log: writing to disk without blocking the loop."""

import gzip
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime.line_log.files import LineFiles, Retention
from namesrv_runtime.line_log.log import LineLog
from namesrv_runtime.line_log.queue import Item
from namesrv_runtime.line_log.writer import Encoder
from namesrv_runtime.threads import NoThreadError
from tests.support.fake_clock import GUARD_SECONDS, until
from tests.support.threads import without_new_threads

WALL = 1_772_351_990.0


class Numbers(Encoder):
    """Lines that show their order; the encoder waits while the test holds the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.count = 0

    def line(self, item: Item) -> bytes:
        """One line, or the given bug."""
        self.has_begun.set()
        assert self.gate.wait(GUARD_SECONDS)
        if isinstance(item.what, Exception):
            raise item.what
        self.count += 1
        return f"{self.count} {item.what}\n".encode()

    def opened(self, item: Item) -> bytes:
        return self.line(Item(item.wall, item.monotonic, "opened"))

    def dropped(self, count: int, item: Item) -> bytes:
        return self.line(Item(item.wall, item.monotonic, f"dropped {count}"))


class Written:
    """A running log with its recorded events."""

    def __init__(self, root: Path, max_file_bytes: int = 20) -> None:
        self.root = root
        self.encoder = Numbers()
        # (event, fields)
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.log = LineLog(
            LineFiles(root, "ns", "0a", Retention(keep_days=1e6, max_bytes=1 << 30), max_file_bytes=max_file_bytes),
            self.encoder,
            report=lambda _, name, fields: self.reports.append((name, fields)),
            max_queued=10,
        )

    def put(self, *what: object, wall: float = WALL, weight: int = 1) -> None:
        for each in what:
            self.log.put(Item(wall, 0.0, each, weight))

    async def until_written(self) -> None:
        await until(lambda: self.log.queued == 0)

    def text(self) -> str:
        """The text of all closed files, in order."""
        packed = sorted(self.root.rglob("*.jsonl.gz"), key=lambda path: int(path.name.split("-")[2].split(".")[0]))
        return "".join(gzip.decompress(path.read_bytes()).decode() for path in packed)


@pytest.fixture
async def written(tmp_path: Path) -> AsyncIterator[Written]:
    """A running log for one test."""
    made = Written(tmp_path / "log")
    made.log.start()
    yield made
    made.encoder.gate.set()
    await made.log.close(GUARD_SECONDS)


async def test_log_without_a_thread_does_not_start(tmp_path: Path) -> None:
    """The error at the limit of threads is the one that callers know, and no bug."""
    with without_new_threads(), pytest.raises(NoThreadError):
        Written(tmp_path).log.start()


async def test_every_file_begins_with_its_own_first_line(written: Written) -> None:
    """A new file starts when one is full and for another hour, also within one batch of lines."""
    written.put("a" * 20)
    await written.until_written()
    written.put("b")
    written.put("c", wall=WALL + 60)
    await written.log.close(GUARD_SECONDS)

    hours = sorted(path.parent.name for path in written.root.rglob("*.gz"))
    assert hours == ["hour=07", "hour=07", "hour=08"]
    assert written.text() == f"1 {'a' * 20}\n2 opened\n3 b\n4 opened\n5 c\n"


async def test_open_file_of_a_killed_process_is_compressed_at_the_next_start(tmp_path: Path) -> None:
    """Otherwise, readers that follow closed files would never see the lines of the killed process."""
    killed = LineFiles(tmp_path / "log", "ns", "00ff", Retention(keep_days=1e6, max_bytes=1 << 30))
    killed.begin(WALL)
    killed.write(b"1 before\n")
    left = killed.end()
    written = Written(tmp_path / "log")
    written.log.start()
    await written.log.close(GUARD_SECONDS)

    assert left is not None
    assert not left.exists()
    assert written.text() == "1 before\n"


async def test_file_exceeds_its_limit_by_one_line_at_most(tmp_path: Path) -> None:
    """The bound holds for long lines and for many waiting ones."""
    written = Written(tmp_path, max_file_bytes=1000)
    written.put(*["a" * 300] * 10)
    written.log.start()
    await written.log.close(GUARD_SECONDS)

    assert [gzip.decompress(path.read_bytes()).count(b"a\n") for path in sorted(written.root.rglob("*.gz"))] == [
        4,
        4,
        2,
    ]


async def test_full_queue_drops_lines_and_counts_them(written: Written) -> None:
    """The writer never waits for room; the log contains the number of missing lines at their place."""
    written.encoder.gate.clear()
    written.put("first")
    await until(written.encoder.has_begun.is_set)
    written.put(*range(9), "lost")
    written.put("too heavy", weight=11)
    assert written.log.dropped == 2
    written.encoder.gate.set()
    await written.until_written()
    written.put("after")
    await written.log.close(GUARD_SECONDS)

    lines = written.text().splitlines()
    assert [line.partition(" ")[2] for line in lines if "opened" not in line][-2:] == ["dropped 2", "after"]
    assert {"lost", "too heavy"} & {line.partition(" ")[2] for line in lines} == set()


async def test_failing_disk_is_retried(written: Written) -> None:
    """A file in place of the folder loses no line; the problem and its end are logged once."""
    written.root.write_bytes(b"in the way")
    written.put("a")
    await until(lambda: len(written.reports) == 1)
    written.put("b")
    written.root.unlink()
    await until(lambda: len(written.reports) == 2)
    await written.log.close(GUARD_SECONDS)

    assert [name for name, _ in written.reports] == ["heartbeat_log_not_written", "heartbeat_log_write_recovered"]
    assert written.text() == "1 a\n2 b\n"
    assert written.log.dropped == 0


async def test_close_does_not_wait_for_a_failing_disk(written: Written) -> None:
    """The process must be able to end; further failed attempts are not reported."""
    written.root.write_bytes(b"in the way")
    written.put("a")
    await until(lambda: len(written.reports) == 1)

    assert not await written.log.close(0.1)
    assert [name for name, _ in written.reports] == ["heartbeat_log_not_written"]


async def test_lines_that_a_full_disk_loses_at_the_end_are_counted(written: Written) -> None:
    """The end of the log is incomplete, and the lost lines still count as queued."""
    folder = written.root / "dt=2026-03-01/hour=07"
    folder.mkdir(parents=True)
    file = folder / "ns-0a-1.jsonl.open"
    file.symlink_to("/dev/full")
    written.put("a")
    await until(lambda: len(written.reports) == 1)
    written.put("b", "c")
    # Compressing it would never end.
    file.unlink()

    assert not await written.log.close(0.1)
    assert written.log.queued == 3


async def test_bug_in_the_thread_is_raised(tmp_path: Path) -> None:
    """A log must never die silently."""
    written = Written(tmp_path)
    written.log.start()
    written.put(ZeroDivisionError("bug"))

    with pytest.raises(ZeroDivisionError, match="bug"):
        await written.log.run()


async def test_clock_step_is_reported_once(tmp_path: Path) -> None:
    """A start long after the newest file counts as a step: the log says so once, not after each file."""
    root = tmp_path / "log"
    old = root / "dt=2020-01-01" / "hour=00" / "ns-0b-1.jsonl.gz"
    old.parent.mkdir(parents=True)
    old.write_bytes(gzip.compress(b"old\n"))
    os.utime(old, (1_577_836_800, 1_577_836_800))
    written = Written(root)
    written.log.start()
    for text in "abc":
        written.put(text * 20)
        await written.until_written()
    await written.log.close(GUARD_SECONDS)

    assert [name for name, _ in written.reports] == ["heartbeat_log_clock_step_detected"]
