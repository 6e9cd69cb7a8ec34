"""The files of a log of lines: when each file is begun, closed, compressed and deleted.

There is one folder per UTC day and hour, and a new file every hour and after `max_file_bytes`. A file ends with
`.open` while it is written, and is compressed when it is closed. All functions block, so they belong into a thread.
"""

import contextlib
import fcntl
import gzip
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from namesrv_runtime.durable_file import sync_directory

OPEN_SUFFIX: Final = ".jsonl.open"
CLOSED_SUFFIX: Final = ".jsonl.gz"
# a closed file after `namesrv-staleness compact`
COMPACTED_SUFFIX: Final = ".parquet"
# 64 MiB take a few seconds to compress to about a tenth, and are a good size for a Spark task.
DEFAULT_MAX_FILE_BYTES: Final = 64 * 1024 * 1024
# The lines of a log resemble each other: level 4 would take up to twice the time and save 3 to 10 %.
_GZIP_LEVEL: Final = 3
# No file is larger than this part of what is kept, so that removing the oldest file removes little.
_MIN_FILES: Final = 16
_SECONDS_PER_HOUR: Final = 3600
_SECONDS_PER_DAY: Final = 86_400
# the largest correction of a wall clock between two files that is not a step
_MAX_STEP_SECONDS: Final = 3600.0
# The longest pause between two processes that proves nothing about the clock; after a longer pause, the clock may
# have been wrong, or the machine may have been off.
_MAX_PAUSE_SECONDS: Final = 86_400.0


@dataclass(slots=True)
class Retention:
    """How much of a log is kept; both limits can change while the log is written."""

    keep_days: float
    max_bytes: int


class LineFiles:
    """The files of one writer: `<directory>/dt=…/hour=…/<name>-<boot_id>-<n>.jsonl.open`."""

    def __init__(  # noqa: PLR0913 - keyword arguments: limits
        self,
        directory: Path,
        name: str,
        boot_id: str,
        retention: Retention,
        *,
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
        syncs: bool = False,
    ) -> None:
        self.directory = directory
        self.retention = retention
        # number of files begun so far
        self.count = 0
        self._name = name
        self._boot_id = boot_id
        self._max_file_bytes = max_file_bytes
        # True if written lines are on disk, and not only in the page cache, when `write` returns
        self._syncs = syncs
        # the file that is written; None between `end` and `begin`
        self._open: _OpenFile | None = None
        self._wall_clock = _WallClock()

    @property
    def room(self) -> int:
        """Bytes left before the current file reaches its size limit; the last line may exceed it."""
        return max(0, self._limit - self._open_bytes)

    @property
    def _limit(self) -> int:
        return min(self._max_file_bytes, self.retention.max_bytes // _MIN_FILES)

    @property
    def _open_bytes(self) -> int:
        # The archiving thread reads this while the writing thread may end the file.
        file = self._open
        return 0 if file is None else file.size

    def is_due(self, wall: float) -> bool:
        """True if lines of this moment belong into a new file."""
        file = self._open
        return file is None or hour_of(wall) != file.hour or file.size >= self._limit or file.is_deleted

    def begin(self, wall: float) -> None:
        """Begin a new file for lines of this moment, after the previous file has ended. Raises OSError; try again."""
        moment = datetime.fromtimestamp(wall, UTC)
        folder = self.directory / f"dt={moment:%Y-%m-%d}" / f"hour={moment:%H}"
        # The log names brokers and clients, so only its owner and group may read it.
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = folder / f"{self._name}-{self._boot_id}-{self.count + 1}{OPEN_SUFFIX}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            # The lock shows other processes that the file is being written.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._syncs:
                for each in (folder, folder.parent, self.directory):
                    sync_directory(each)
        except OSError:
            os.close(fd)
            raise
        self.count += 1
        self._open = _OpenFile(path, fd, hour_of(wall), syncs=self._syncs)

    def write(self, lines: bytes) -> None:
        """Append whole lines to the file that `begin` began.

        Raises OSError; then the file has no part of the lines, and the next try may succeed.
        """
        if self._open is None:
            raise ValueError("no file has begun")
        self._open.write(lines)

    def end(self) -> Path | None:
        """Stop writing the current file; return its path, to be compressed, if there is a file."""
        file, self._open = self._open, None
        if file is None:
            return None
        file.close()
        return file.path

    def left_open(self) -> Iterator[Path]:
        """Files that earlier processes of this writer left `.open`."""
        # Files of this process are excluded by name: a file that the writing thread begins just now has no lock yet,
        # and testing for the lock would disturb it; a file that has ended is compressed later anyway.
        mine = f"{self._name}-{self._boot_id}-"
        for path, _ in self._files(OPEN_SUFFIX):
            if not path.name.startswith(mine) and not _is_locked(path):
                yield path

    def remove_old(self, wall: float, steady: float) -> tuple[list[Path], bool]:
        """Remove files that are too old, and the oldest files while the total is too large.

        Returns the removed files, and whether the wall clock is doubted. `steady` is the time of a clock that is never
        set. A step of the wall clock may make all files look old at once: after a step no file is removed for its age
        until the clock has run evenly for as long as files are kept. Raises OSError if a file cannot be removed, once
        all others are.
        """
        files = self._files(CLOSED_SUFFIX, COMPACTED_SUFFIX)
        newest = max((status.st_mtime for _, status in files), default=None)
        keep_seconds = self.retention.keep_days * _SECONDS_PER_DAY
        is_doubted = self._wall_clock.even_seconds(wall, steady, newest) < keep_seconds
        oldest = -math.inf if is_doubted else wall - keep_seconds
        removed = [path for path, status in files if status.st_mtime < oldest]
        kept = [(path, status.st_size) for path, status in files if status.st_mtime >= oldest]
        total = self._open_bytes + sum(size for _, size in kept)
        for path, size in kept:
            if total <= self.retention.max_bytes:
                break
            removed.append(path)
            total -= size
        failure: OSError | None = None
        for path in removed:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failure = error
            else:
                _remove_empty(path.parent, self.directory)
        if failure is not None:
            raise failure
        return removed, is_doubted

    def _files(self, *suffixes: str) -> list[tuple[Path, os.stat_result]]:
        """This writer's files, of all its processes, oldest first: by hour, then by the time of the last line."""
        endings = "|".join(re.escape(suffix) for suffix in suffixes)
        mine = re.compile(rf"{re.escape(self._name)}-([0-9a-f]+)-([0-9]+)({endings})")
        files = []
        for path in self.directory.glob(f"dt=*/hour=*/{self._name}-*"):
            match = mine.fullmatch(path.name)
            if match:
                # Another process may rename or remove the file meanwhile, or the folder may be another user's: such
                # a file is left alone.
                with contextlib.suppress(OSError):
                    status = path.stat()
                    order = (path.parent, status.st_mtime_ns, match[1], int(match[2]))
                    files.append((order, path, status))
        return [(path, status) for _, path, status in sorted(files)]


class _OpenFile:
    """The file that is written; it has whole lines only."""

    def __init__(self, path: Path, fd: int, hour: int, *, syncs: bool) -> None:
        self.path = path
        self.hour = hour
        # bytes that are whole lines
        self.size = 0
        self._fd = fd
        self._syncs = syncs
        # True if half a line may follow these bytes, because the file could not be truncated
        self._is_torn = False

    @property
    def is_deleted(self) -> bool:
        """True if another process removed the file from its folder."""
        return os.fstat(self._fd).st_nlink == 0

    def write(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError; then the file has no part of them, and the next try may succeed."""
        view = memoryview(lines)
        try:
            if self._is_torn:
                self._cut()
            while view:
                view = view[os.write(self._fd, view) :]
            if self._syncs:
                os.fdatasync(self._fd)
        except OSError:
            # Half a line may only be at the end of a file, where a crash explains it: cut it off before writing on.
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._cut()
            raise
        self.size += len(lines)

    def _cut(self) -> None:
        os.ftruncate(self._fd, self.size)
        self._is_torn = False

    def close(self) -> None:
        """Close the file, which has its last line."""
        os.close(self._fd)


class _WallClock:
    """Notices steps of the wall clock, by a steady clock that is never set."""

    def __init__(self) -> None:
        # difference of wall clock and steady clock at the last look
        self._offset: float | None = None
        # the steady time since which the wall clock has made no step
        self._even_since = -math.inf

    def even_seconds(self, wall: float, steady: float, newest: float | None) -> float:
        """For how long the wall clock has made no step; the first look compares it with the time of the newest file."""
        before, self._offset = self._offset, wall - steady
        if before is not None:
            is_even = abs(self._offset - before) <= _MAX_STEP_SECONDS
        else:
            is_even = newest is None or -_MAX_STEP_SECONDS <= wall - newest <= _MAX_PAUSE_SECONDS
        if not is_even:
            self._even_since = steady
        return steady - self._even_since


def hour_of(wall: float) -> int:
    """The number of full hours from 1970 to a moment."""
    return int(wall // _SECONDS_PER_HOUR)


def moments_of_hour(wall: float) -> tuple[float, float]:
    """The start of a moment's hour, and of the next hour."""
    start = hour_of(wall) * _SECONDS_PER_HOUR
    return start, start + _SECONDS_PER_HOUR


def compress(path: Path) -> Path:
    """Replace a file by its compressed form, once that is on disk. Raises OSError, and leaves the file."""
    target = path.with_name(path.name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX)
    # Readers ignore a file with this name.
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        with path.open("rb") as source, scratch.open("wb") as raw:
            # Without a name and a time in the header, the same lines give the same bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
                shutil.copyfileobj(source, packed, 1024 * 1024)
            raw.flush()
            os.fsync(raw.fileno())
        # The age of a file is the age of its last line.
        status = path.stat()
        os.utime(scratch, (status.st_atime, status.st_mtime))
        scratch.chmod(0o640)
        scratch.replace(target)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    path.unlink()
    return target


def _is_locked(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove an empty folder, and the empty folders above it, up to the root."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
