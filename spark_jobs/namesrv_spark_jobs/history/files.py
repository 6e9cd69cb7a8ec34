"""Which files of the log directories a span of time needs: the folders of its hours, and no others."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, Span, moment_ms, written

# what a reader takes: closed, plain, being written, and compacted
SUFFIXES: Final = (".jsonl.gz", ".jsonl", ".open", ".parquet")
# a line is written a little after its moment, and a file is closed by the next line
_LATE_MS: Final = HOUR_MS
# of compressed logs: what the analysis reads in a minute or two on a small machine
MOST_BYTES: Final = 256 << 20
_DAY: Final = re.compile(r"dt=\d{4}-\d\d-\d\d")
_HOUR: Final = re.compile(r"hour=([01]\d|2[0-3])")


class LogsError(Exception):
    """The logs cannot say it; the text, which people read, says why."""


def files_of(folders: Sequence[str], span: Span) -> list[str]:
    """The files with lines of a span, by name; those outside the folders of hours may have any. Raises LogsError."""
    found: dict[str, int] = {}
    for folder in folders:
        if not Path(folder).is_dir():
            raise LogsError(f"{folder}: no such directory")
        found |= _below(Path(folder), span)
    size = sum(found.values())
    if size > MOST_BYTES:
        moments = f"from {written(span.from_ms)} to {written(span.to_ms)}"
        limit = f"limit {MOST_BYTES >> 20} MiB; choose a shorter time, or run namesrv-staleness"
        raise LogsError(f"the logs {moments} are {size >> 20} MiB, {limit}")
    return sorted(found)


def _below(folder: Path, span: Span) -> dict[str, int]:
    """The sizes of the files by path."""
    found: dict[str, int] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")) and _is_near(root, name, span))
        for name in names:
            if name.endswith(SUFFIXES) and not name.startswith(("_", ".")):
                path = Path(root, name)
                try:
                    found[str(path.resolve())] = path.stat().st_size
                except FileNotFoundError:
                    # removed, or closed in this moment: then the next reading has it
                    continue
    return found


def _is_near(root: str, name: str, span: Span) -> bool:
    """Whether a folder below `root` may have lines of a span."""
    if (day_ms := _day_ms(name)) is not None:
        return _overlaps(day_ms, DAY_MS, span)
    hour, day_ms = _HOUR.fullmatch(name), _day_ms(Path(root).name)
    if hour and day_ms is not None:
        return _overlaps(day_ms + int(hour[1]) * HOUR_MS, HOUR_MS, span)
    return True


def _day_ms(name: str) -> int | None:
    """When the day of a folder begins; None for a folder of something else."""
    try:
        return moment_ms(name.removeprefix("dt=")) if _DAY.fullmatch(name) else None
    except ValueError:
        return None


def _overlaps(from_ms: int, length_ms: int, span: Span) -> bool:
    return from_ms < span.to_ms and span.from_ms < from_ms + length_ms + _LATE_MS


def last_hour(folders: Iterable[str]) -> Span | None:
    """The last hour that has a folder, so that a page can begin where there is something to see."""
    starts = [
        day_ms + int(hour[1]) * HOUR_MS
        for folder in folders
        for path in Path(folder).glob("dt=*/hour=*")
        if (day_ms := _day_ms(path.parent.name)) is not None and (hour := _HOUR.fullmatch(path.name))
    ]
    return Span(max(starts), max(starts) + HOUR_MS) if starts else None
