"""Atomic replacement of files, and JSON in them: a crash leaves the old one or the new one, whole."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Some file systems (network, FUSE) cannot sync a directory and say so with one of these; they have nothing better.
CANNOT_SYNC_DIRECTORY: Final = frozenset({errno.EBADF, errno.EINVAL})


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put `data` in the place of the file: once this returns it survives a power cut, if it raises the old file stays.

    There is one exception. When the very last step fails, syncing the directory after the rename, the new file is in
    place, whole, but a power cut may still bring the old one back. Raises OSError, and leaves no temporary file.
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
    """Rename a damaged file to `<name>.damaged-<utc time>[-n]`, warn, and return where it is now. Raises OSError."""
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


def sync_directory(path: Path) -> None:
    """Have the names in a directory survive a power cut."""
    with _synced_directory(path):
        pass


# -- sealed files: a JSON document with a version and a checksum, for its owner only ----------------------------------
#
# Nothing but the exact envelope is looked into, and nothing in it before its checksum is right: a torn or damaged file
# meets no parser.

_ENVELOPE: Final = re.compile(rb'\{"sha256":"([0-9a-f]{64})","content":(.*)\}\n', re.DOTALL)


class SealedFileError(ValueError):
    """These bytes are not what was written; the message says why."""


def write_sealed(path: Path, document: Mapping[str, Any]) -> int:
    """Replace the file, and return its size when it is on disk. Raises OSError; then it is as it was."""
    data = seal(document)
    write_atomically(path, data, mode=0o600)
    return len(data)


def seal(document: Mapping[str, Any]) -> bytes:
    """The file of a document, which has a `version`."""
    # ASCII with escapes: it can write every name that came over the wire, also those that are not quite unicode
    content = json.dumps(document, separators=(",", ":")).encode("ascii")
    return enveloped(hashlib.sha256(content).hexdigest().encode("ascii"), content)


def enveloped(checksum: bytes, content: bytes) -> bytes:
    """The file of a content with this checksum."""
    return b'{"sha256":"%b","content":%b}\n' % (checksum, content)


def unseal(data: bytes, version: int) -> dict[str, Any]:
    """The document of a file, as it was sealed. Raises SealedFileError if torn, damaged, or of another version."""
    envelope = _ENVELOPE.fullmatch(data)
    if envelope is None:
        raise SealedFileError(f"truncated or not a sealed file: {len(data)} bytes")
    checksum, content = envelope[1].decode("ascii"), envelope[2]
    actual = hashlib.sha256(content).hexdigest()
    if actual != checksum:
        raise SealedFileError(f"checksum {actual} of the content, {checksum} in the file")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SealedFileError(f"unexpected content: {error}") from error
    found = document.get("version") if isinstance(document, dict) else None
    if found != version:
        raise SealedFileError(f"version {found!r}, this release reads {version}")
    return dict(document)
