"""Permissions of files, which do not count for root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# the user id of `nobody`
_NOBODY: Final = 65_534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Context in which permissions of files count, also for root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
