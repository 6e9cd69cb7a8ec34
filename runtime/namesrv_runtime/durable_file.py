"""Atomic replacement of files: a crash leaves the old one or the new one, whole, and nothing is lost silently."""

import contextlib
import errno
import logging
import os
import re
import secrets
from collections.abc import Iterator
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
    with _synced_directory(path.parent) as directory:
        temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, mode, dir_fd=directory)
        try:
            _write_and_close(file, data)
            os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files that writers of this file left when they were killed.

    Only for start-up, when nobody writes the file.
    """
    leftover = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.tmp")
    # a courtesy: whatever is wrong with the directory shows when the file itself is read or written
    with contextlib.suppress(OSError):
        for entry in list(path.parent.iterdir()):
            if leftover.fullmatch(entry.name):
                entry.unlink()


def set_aside(path: Path, reason: str) -> Path:
    """Rename a damaged file to `<name>.damaged-<utc time>[-n]`, warn, and return where it is now; overwrites nothing.

    Raises:
        OSError: it could not be renamed and is where it was.
    """
    with _synced_directory(path.parent):
        target = _reserve(path)
        try:
            path.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                target.unlink()
            raise
    event(logger, logging.WARNING, "damaged_file_set_aside", path=path, kept_as=target, reason=reason)
    return target


def _reserve(path: Path) -> Path:
    """An empty file of our own to rename to: a rename overwrites, and so it overwrites only this."""
    name = f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    target, number = path.with_name(name), 1
    while True:
        try:
            target.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            number += 1
            target = path.with_name(f"{name}-{number}")
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


@contextlib.contextmanager
def _synced_directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory, so that all steps stay in one, even when somebody moves it in the meantime.

    What is renamed in it survives a power cut.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
        try:
            os.fsync(directory)
        except OSError as error:
            if error.errno not in CANNOT_SYNC_DIRECTORY:
                raise
    finally:
        os.close(directory)
