"""Directories of logs that are missing, for example on a disk that is not mounted."""

from collections.abc import Sequence
from pathlib import Path


def missing(logs: Sequence[str]) -> list[str]:
    """The missing directories; none if all are missing, since pages then have nothing else to show."""
    found = [log for log in logs if _is_missing(log)]
    return found if len(found) < len(logs) else []


def _is_missing(log: str) -> bool:
    try:
        return not Path(log).is_dir()
    except OSError:
        # The reading fails with the reason.
        return False
