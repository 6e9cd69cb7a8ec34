"""How does the daemon keep a file that it cannot read? Aside, and with a line in the log; the rest is shared."""

import logging
from pathlib import Path

from namesrv_runtime import durable_file
from namesrv_runtime.durable_file import remove_leftovers, write_atomically
from namesrv_runtime.log import event

logger = logging.getLogger(__name__)


def set_aside(path: Path, reason: str, *, wall_seconds: float | None = None) -> Path:
    """Rename a damaged file to `<name>.damaged-<utc time>[-n]`, warn, and return where it is now; overwrites nothing.

    Raises:
        OSError: it could not be renamed and is where it was.
    """
    target = durable_file.set_aside(path, wall_seconds=wall_seconds)
    event(logger, logging.WARNING, "damaged_file_set_aside", path=path, kept_as=target, reason=reason)
    return target


__all__ = ["remove_leftovers", "set_aside", "write_atomically"]
