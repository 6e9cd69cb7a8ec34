"""Which hours have folders of logs."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.history.spans import HOUR_MS, Span

# Where the hours are: below the directory of a log, a server's data directory (`log_folders`, which also names its
# heartbeats, is not in this wheel), a day, or a directory with one of these for each server.
_PLACES: Final = (
    ("dt=*/hour=*", "heartbeats/dt=*/hour=*"),
    ("hour=*", "*/dt=*/hour=*", "*/heartbeats/dt=*/hour=*"),
)
_DAY: Final = re.compile(r"dt=\d{4}-\d\d-\d\d")
HOUR: Final = re.compile(r"hour=([01]\d|2[0-3])")


class LogsError(Exception):
    """A request cannot be answered from the logs; the message is the reason, for people."""


def last_hour(folders: Iterable[str]) -> Span | None:
    """The last hour that has a folder, at which pages begin; None without such a folder."""
    hours = all_hours(folders)
    return None if hours is None else Span(hours.to_ms - HOUR_MS, hours.to_ms)


def all_hours(folders: Iterable[str]) -> Span | None:
    """The time from the first to the last hour that has a folder; None without such a folder."""
    starts = [start for folder in folders for start in _starts(Path(folder).absolute())]
    return Span(min(starts), max(starts) + HOUR_MS) if starts else None


def _starts(folder: Path) -> list[int]:
    """The start of each hour that has a folder, from the nearest places in which there are any."""
    for patterns in _PLACES:
        starts = [
            day_ms + int(hour[1]) * HOUR_MS
            for pattern in patterns
            for path in folder.glob(pattern)
            if (day_ms := day_ms_of(path.parent.name)) is not None and (hour := HOUR.fullmatch(path.name))
        ]
        if starts:
            return starts
    return []


def day_ms_of(name: str) -> int | None:
    """The start of a folder's day; None when the folder is not one of a day."""
    try:
        return moment_ms(name.removeprefix("dt=")) if _DAY.fullmatch(name) else None
    except ValueError:
        return None
