"""Permissions of files, which do not count for root."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# the user id of `nobody`
_NOBODY: Final = 65_534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Context in which permissions of files count, also for root."""
    user = os.geteuid()
    # `strptime` imports a module with its first call, and `nobody` may be unable to read the folder of Python.
    time.strptime("2026", "%Y")
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
