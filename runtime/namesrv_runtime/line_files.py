"""The files of a log of lines: when each is begun, closed, compressed and deleted.

One folder per UTC day and hour, a new file every hour and after so many bytes, `.open` while it is written, compressed
when it is closed. Everything here blocks: it belongs into a thread of its own.
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
# what `namesrv-staleness compact` makes of a closed file
COMPACTED_SUFFIX: Final = ".parquet"
# 64 MiB are a few seconds of compression, and the size of a Spark task; JSON lines become a tenth of it.
DEFAULT_MAX_FILE_BYTES: Final = 64 * 1024 * 1024
# The lines of one log are much alike: level 4 takes up to twice the time, and saves 3 to 10%.
_GZIP_LEVEL: Final = 3
_SECONDS_PER_HOUR: Final = 3600
_SECONDS_PER_DAY: Final = 86_400
# by which a wall clock may be corrected between two files
_MAX_STEP_SECONDS: Final = 3600.0
# Between two runs; after a longer one nobody knows whether the clock or the process stood still.
_MAX_PAUSE_SECONDS: Final = 86_400.0


@dataclass(slots=True)
class Retention:
    """What is kept; both can change while the log is written."""

    keep_days: float
    max_bytes: int


class LineFiles:
    """The files of one writer: `<directory>/dt=…/hour=…/<name>-<run_id>-<n>.jsonl.open`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        run_id: str,
        *,
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
        syncs: bool = False,
    ) -> None:
        self.directory = directory
        # of files begun so far
        self.count = 0
        self._name = name
        self._run_id = run_id
        self._max_file_bytes = max_file_bytes
        # whether what is written is on disk, and not in the page cache, when `write` returns
        self._syncs = syncs
        # the file that is written: its path, descriptor, hour and bytes that are whole lines
        self._path: Path | None = None
        self._fd = -1
        self._hour = -1
        self._good_bytes = 0
        # half a line may come after them, which the disk has not taken back
        self._is_torn = False
        # the wall clock against the steady one when files were removed last, and since when it can be believed
        self._offset: float | None = None
        self._steady_since = -math.inf

    @property
    def room(self) -> int:
        """Bytes that the file that is written has yet to get; the last line may be longer."""
        return self._max_file_bytes - self._good_bytes

    def is_due(self, wall: float) -> bool:
        """Whether lines of this moment belong into a new file."""
        if self._fd < 0 or hour_of(wall) != self._hour or self._good_bytes >= self._max_file_bytes:
            return True
        # somebody removed it
        return os.fstat(self._fd).st_nlink == 0

    def begin(self, wall: float) -> None:
        """Begin a new file for lines of this moment; the one before has to be ended. Raises OSError; try again."""
        moment = datetime.fromtimestamp(wall, UTC)
        folder = self.directory / f"dt={moment:%Y-%m-%d}" / f"hour={moment:%H}"
        # the log names brokers and clients: for the owner and its group
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = folder / f"{self._name}-{self._run_id}-{self.count + 1}{OPEN_SUFFIX}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            # says to other processes that somebody writes it
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._syncs:
                for each in (folder, folder.parent, self.directory):
                    sync_directory(each)
        except OSError:
            os.close(fd)
            raise
        self.count += 1
        self._path, self._fd = path, fd
        self._hour = hour_of(wall)
        self._good_bytes = 0
        self._is_torn = False

    def write(self, lines: bytes) -> None:
        """Append whole lines. Raises OSError; then none of them is in the file, and the next try may work."""
        view = memoryview(lines)
        try:
            if self._is_torn:
                self._cut()
            while view:
                view = view[os.write(self._fd, view) :]
            if self._syncs:
                os.fdatasync(self._fd)
        except OSError:
            # half a line in the middle of a file would be one that no crash explains
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._cut()
            raise
        self._good_bytes += len(lines)

    def _cut(self) -> None:
        os.ftruncate(self._fd, self._good_bytes)
        self._is_torn = False

    def end(self) -> Path | None:
        """Stop writing the file; its path, to be compressed, if there is one."""
        if self._fd < 0:
            return None
        os.close(self._fd)
        self._fd = -1
        path, self._path = self._path, None
        return path

    def left_open(self) -> Iterator[Path]:
        """Files that an earlier run of this writer, or one that crashed, left `.open`."""
        # Not this run's, by name: one that another thread begins just now has no lock yet, and a look at its lock would
        # be in the way; one that it has ended is compressed when its turn comes.
        mine = f"{self._name}-{self._run_id}-"
        for path in self._files(OPEN_SUFFIX):
            if not path.name.startswith(mine) and not _is_locked(path):
                yield path

    def remove_old(self, wall: float, steady: float, retention: Retention) -> tuple[list[Path], bool]:
        """Remove what is too old, and the oldest while all is too much: which files, and whether the clock is doubted.

        `steady` are the seconds of a clock that nobody sets. After a step of the wall clock, which may have made all
        files old at once, none is too old until it has run evenly for as long as files are kept.
        """
        found: list[tuple[Path, os.stat_result]] = []
        for path in self._files(CLOSED_SUFFIX, COMPACTED_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                found.append((path, path.stat()))
        self._notice_steps(wall, steady, max((status.st_mtime for _, status in found), default=None))
        keep_seconds = retention.keep_days * _SECONDS_PER_DAY
        is_doubted = steady - self._steady_since < keep_seconds
        oldest = -math.inf if is_doubted else wall - keep_seconds
        removed = [path for path, status in found if status.st_mtime < oldest]
        kept = [(path, status.st_size) for path, status in found if status.st_mtime >= oldest]
        total = self._good_bytes + sum(size for _, size in kept)
        for path, size in kept:
            if total <= retention.max_bytes:
                break
            removed.append(path)
            total -= size
        for path in removed:
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, self.directory)
        return removed, is_doubted

    def _notice_steps(self, wall: float, steady: float, newest: float | None) -> None:
        """Of the wall clock: against the steady one, and at first against the newest file."""
        before, self._offset = self._offset, wall - steady
        if before is not None:
            is_even = abs(self._offset - before) <= _MAX_STEP_SECONDS
        else:
            is_even = newest is None or -_MAX_STEP_SECONDS <= wall - newest <= _MAX_PAUSE_SECONDS
        if not is_even:
            self._steady_since = steady

    def _files(self, *suffixes: str) -> list[Path]:
        """This writer's files, of all its runs, oldest first."""
        endings = "|".join(re.escape(suffix) for suffix in suffixes)
        mine = re.compile(rf"{re.escape(self._name)}-([0-9a-f]+)-([0-9]+)({endings})")
        found = []
        for path in self.directory.glob(f"dt=*/hour=*/{self._name}-*"):
            match = mine.fullmatch(path.name)
            if match:
                found.append((path.parent.parent.name, path.parent.name, match[1], int(match[2]), path))
        return [path for *_, path in sorted(found)]


def hour_of(wall: float) -> int:
    """Which hour since 1970 a moment is in."""
    return int(wall // _SECONDS_PER_HOUR)


def moments_of_hour(wall: float) -> tuple[float, float]:
    """When the hour of a moment begins, and the next one."""
    begin = hour_of(wall) * _SECONDS_PER_HOUR
    return begin, begin + _SECONDS_PER_HOUR


def compress(path: Path) -> Path:
    """Put the compressed form, once it is on disk, in the place of a file. Raises OSError, and leaves the file."""
    target = path.with_name(path.name.removesuffix(OPEN_SUFFIX) + CLOSED_SUFFIX)
    # no reader takes it for a log
    scratch = target.with_name(f".{target.name}.tmp")
    try:
        with path.open("rb") as source, scratch.open("wb") as raw:
            # no name and no time in it: the same lines are the same bytes
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
                shutil.copyfileobj(source, packed, 1024 * 1024)
            raw.flush()
            os.fsync(raw.fileno())
        # age is that of the last line
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
    """Remove a folder that holds nothing any more, and those above it, up to the root."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
