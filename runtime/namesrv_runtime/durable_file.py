"""Atomic replacement of files: a crash leaves the old one or the new one, whole, and nothing is lost silently."""

import contextlib
import errno
import logging
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Some file systems (network, FUSE) cannot sync a directory and say so with one of these; they have nothing better.
CANNOT_SYNC_DIRECTORY: Final = frozenset({errno.EBADF, errno.EINVAL})


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` in the place of the file: once this returns it survives a power cut, if it raises the old file stays.

    There is one exception. When the very last step fails, syncing the directory after the rename, the new file is in
    place, whole, but a power cut may still bring the old one back.

    Raises:
        OSError: the disk is full, the directory is read-only or gone, and the like. No temporary file is left.
    """
    # all steps go through one descriptor: they stay in one directory, even when somebody moves it in the meantime
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory
        )
        try:
            _write_and_close(file, data)
            os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        _sync_directory(directory)
    finally:
        os.close(directory)


def remove_leftovers(path: Path) -> int:
    """Remove the temporary files that writers of this file left when they were killed; how many there were.

    Only for start-up, when nobody writes the file.
    """
    leftover = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.tmp")
    removed = 0
    # a courtesy: whatever is wrong with the directory shows when the file itself is read or written
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            if leftover.fullmatch(entry.name):
                os.unlink(entry.path)  # noqa: PTH108  # what scandir hands out
                removed += 1
    return removed


def set_aside(path: Path, reason: str, *, wall_seconds: float | None = None) -> Path:
    """Rename a damaged file to `<name>.damaged-<utc time>[-n]`, warn, and return where it is now; overwrites nothing.

    Raises:
        OSError: it could not be renamed and is where it was.
    """
    now = datetime.now(UTC) if wall_seconds is None else datetime.fromtimestamp(wall_seconds, UTC)
    target = _reserve(path, now.strftime("%Y%m%dT%H%M%SZ"))
    try:
        path.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            target.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_directory(directory)
    finally:
        os.close(directory)
    event(logger, logging.WARNING, "damaged_file_set_aside", path=path, kept_as=target, reason=reason)
    return target


def _reserve(path: Path, timestamp: str) -> Path:
    """An empty file of our own to rename to: a rename overwrites, and so it overwrites only this."""
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        target = path.with_name(f"{path.name}.damaged-{timestamp}{suffix}")
        try:
            target.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return target


def _write_and_close(file: int, data: bytes) -> None:
    try:
        # a nearly full disk takes a part and refuses the rest at the next call
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        # inside the caller's try: some file systems report a full disk only here
        os.close(file)


def _sync_directory(directory: int) -> None:
    """Make a rename survive a power cut."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in CANNOT_SYNC_DIRECTORY:
            raise
