"""Lines are written to disk without ever holding up the loop."""

import gzip
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_runtime.line_files import LineFiles, Retention
from namesrv_runtime.line_log import Encoder, Item, LineLog
from tests.support.fake_clock import GUARD_SECONDS, until

WALL = 1_772_351_990.0
FOLDER = "dt=2026-03-01/hour=07"


class Numbers(Encoder):
    """Lines that show in which order they were made; it waits while the test holds the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.count = 0

    def line(self, item: Item) -> bytes:
        """One line, or the bug that was put."""
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
    """A log that runs, and what it said."""

    def __init__(self, root: Path, max_file_bytes: int = 20) -> None:
        self.root = root
        self.encoder = Numbers()
        # (event, fields)
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.log = LineLog(
            LineFiles(root, "ns", "0a", max_file_bytes=max_file_bytes),
            self.encoder,
            Retention(keep_days=1e6, max_bytes=1 << 30),
            report=lambda _, name, fields: self.reports.append((name, fields)),
            max_queued=10,
        )

    def put(self, *what: object, wall: float = WALL, weight: int = 1) -> None:
        for each in what:
            self.log.put(Item(wall, 0.0, each, weight))

    async def until_written(self) -> None:
        await until(lambda: self.log.queued == 0)

    def text(self) -> str:
        """All that is in closed files, in their order."""
        packed = sorted(self.root.rglob("*.jsonl.gz"), key=lambda path: int(path.name.split("-")[2].split(".")[0]))
        return "".join(gzip.decompress(path.read_bytes()).decode() for path in packed)


@pytest.fixture
async def written(tmp_path: Path) -> AsyncIterator[Written]:
    """A log that runs until the test is over."""
    made = Written(tmp_path / "log")
    made.log.start()
    yield made
    made.encoder.gate.set()
    await made.log.close(GUARD_SECONDS)


async def test_what_was_put_is_written_in_its_order(written: Written) -> None:
    """On disk while the log goes on, and not only after an hour; the file is compressed when it is closed."""
    written.put("a", "b")
    await written.until_written()
    assert (written.root / FOLDER / "ns-0a-1.jsonl.open").read_text() == "1 a\n2 b\n"

    assert await written.log.close(GUARD_SECONDS)
    assert written.text() == "1 a\n2 b\n"
    assert list(written.root.rglob("*.open")) == []


async def test_a_later_file_begins_with_its_own_first_line(written: Written) -> None:
    """When one is full, and for another hour, also when lines of both were put at once; its number is in order."""
    written.put("a" * 20)
    await written.until_written()
    written.put("b")
    written.put("c", wall=WALL + 60)
    await written.log.close(GUARD_SECONDS)

    hours = sorted(path.parent.name for path in written.root.rglob("*.gz"))
    assert hours == ["hour=07", "hour=07", "hour=08"]
    assert written.text() == f"1 {'a' * 20}\n2 opened\n3 b\n4 opened\n5 c\n"


async def test_a_file_gets_little_more_than_it_has_room_for(tmp_path: Path) -> None:
    """However long lines are, and however many wait: one line more."""
    written = Written(tmp_path, max_file_bytes=1000)
    written.put(*["a" * 300] * 10)
    written.log.start()
    await written.log.close(GUARD_SECONDS)

    assert [gzip.decompress(path.read_bytes()).count(b"a\n") for path in sorted(written.root.rglob("*.gz"))] == [
        4,
        4,
        2,
    ]


async def test_a_full_queue_drops_and_counts(written: Written) -> None:
    """What comes too much is never waited for; the log says how many lines are missing, and where."""
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


async def test_a_disk_that_fails_is_tried_again(written: Written) -> None:
    """A file stands where the folder should be: nothing is lost, the trouble is told once, and so is its end."""
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


async def test_closing_does_not_wait_for_a_disk_that_fails(written: Written) -> None:
    """The process has to end some day."""
    written.root.write_bytes(b"in the way")
    written.put("a")
    await until(lambda: len(written.reports) == 1)

    assert not await written.log.close(0.1)


async def test_a_bug_in_a_thread_ends_the_run(tmp_path: Path) -> None:
    """A log that dies silently would be a lie."""
    written = Written(tmp_path)
    written.log.start()
    written.put(ZeroDivisionError("bug"))

    with pytest.raises(ZeroDivisionError, match="bug"):
        await written.log.run()


async def test_files_of_a_crash_are_closed_at_the_start(tmp_path: Path) -> None:
    """As they are, torn line and all."""
    root = tmp_path / "log"
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "ns-99-1.jsonl.open").write_bytes(b'whole\n{"to')
    written = Written(root)
    written.log.start()
    await written.log.close(GUARD_SECONDS)

    assert gzip.decompress((root / FOLDER / "ns-99-1.jsonl.gz").read_bytes()) == b'whole\n{"to'
    assert list(root.rglob("*.open")) == []
