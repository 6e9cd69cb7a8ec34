"""Selection of the log files for a span of time: those in the folders of its hours."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.history.hours import HOUR, LogsError, day_ms_of
from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, Span, written
from namesrv_spark_jobs.log_folders import PARQUET_SUFFIX, logs_below

# An hour's folder may have lines of the hour before: a line is written a little after its event, and a file is closed
# only by the next line.
_LATE_MS: Final = HOUR_MS
# the limit for a reading: compressed logs of this size take a minute or two on a small machine
MOST_BYTES: Final = 256 << 20


def files_of(folders: Sequence[str], span: Span) -> list[str]:
    """The files with lines of a span, sorted. Files outside of folders of hours always count. Raises LogsError."""
    sizes: dict[str, int] = {}
    for folder in folders:
        try:
            os.scandir(folder).close()
            sizes |= _below(Path(folder), span)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LogsError(f"{folder}: no such directory") from error
        except OSError as error:
            # Without the lines in this place, a page would show the past as if a server had not run.
            raise LogsError(f"{error.filename}: {str(error.strerror).lower()}") from error
    size = sum(sizes.values())
    if size > MOST_BYTES:
        moments = f"from {written(span.from_ms)} to {written(span.to_ms)}"
        limit = f"limit {MOST_BYTES >> 20} MiB; choose a shorter time, or run namesrv-staleness"
        raise LogsError(f"the logs {moments} are {size >> 20} MiB, {limit}")
    return sorted(sizes)


def _below(folder: Path, span: Span) -> dict[str, int]:
    """The sizes of the files by path. Raises OSError for a folder or file that cannot be read."""
    sizes: dict[str, int] = {}
    for found in logs_below(folder, _raise, lambda root, name: _is_near(root, name, span)):
        for path in sorted(found.glob(f"*{PARQUET_SUFFIX}")) if found.is_dir() else [found]:
            # to open a named pipe would take for ever
            if path.is_fifo():
                continue
            try:
                with path.open("rb") as file:
                    sizes[str(path.resolve())] = os.fstat(file.fileno()).st_size
            except FileNotFoundError:
                # the file was removed, or just closed; in that case the next reading finds it
                continue
    return sizes


def _raise(error: OSError) -> None:
    raise error


def _is_near(root: str, name: str, span: Span) -> bool:
    """True if a folder below `root` may have lines of a span."""
    if (day_ms := day_ms_of(name)) is not None:
        return _overlaps(day_ms, DAY_MS, span)
    hour, day_ms = HOUR.fullmatch(name), day_ms_of(Path(root).name)
    if hour and day_ms is not None:
        return _overlaps(day_ms + int(hour[1]) * HOUR_MS, HOUR_MS, span)
    return True


def _overlaps(from_ms: int, length_ms: int, span: Span) -> bool:
    return from_ms < span.to_ms and span.from_ms < from_ms + length_ms + _LATE_MS
