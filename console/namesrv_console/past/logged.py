"""The time that the logs cover, and the directories of logs that are missing, as on a disk that is not mounted.

Only the worker looks at the directories: on a dead network disk it may wait for ever.
"""

from collections.abc import Sequence
from pathlib import Path

from namesrv_spark_jobs.history.hours import all_hours
from namesrv_spark_jobs.history.model import Value
from namesrv_spark_jobs.history.spans import Span


class LoggedRequest(Value, frozen=True, tag="logged"):
    """Which hours have logs, and which directories are missing."""

    # The minute of the request, so that no later request gets its result.
    minute: int


class Logged(Value, frozen=True, tag="logged"):
    """The result for a LoggedRequest."""

    # From the first to the last hour with logs; None without such an hour.
    hours: Span | None
    missing: list[str]


def look(logs: Sequence[str]) -> Logged:
    """The hours and the missing directories."""
    return Logged(hours=all_hours(logs), missing=missing_directories(logs))


def missing_directories(logs: Sequence[str]) -> list[str]:
    """The missing directories; none if all are missing, since pages then have nothing else to show."""
    found = [log for log in logs if _is_missing(log)]
    return found if len(found) < len(logs) else []


def _is_missing(log: str) -> bool:
    try:
        return not Path(log).is_dir()
    except OSError:
        # The reading fails with the reason.
        return False
