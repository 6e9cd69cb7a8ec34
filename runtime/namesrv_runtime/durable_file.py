"""Atomic replacement of files, and of JSON documents in files: a crash leaves either the old or the new file, whole."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# The most items of a list that are encoded in one call, which holds the interpreter lock: about 0.2 ms.
_ENCODED_AT_ONCE: Final = 100

# Some network and FUSE file systems cannot sync a directory and report one of these errors; they offer nothing better.
CANNOT_SYNC_DIRECTORY: Final = frozenset({errno.EBADF, errno.EINVAL})


# modification time, size and inode of a file
FileStamp = tuple[int, int, int]


def write_atomically(path: Path, data: bytes, *, mode: int = 0o600, like: os.stat_result | None = None) -> None:
    """Replace the file: after a return the new file survives a power cut, after an error the old file is still there.

    The new file has the owner, group and permissions of `like`; without it, those of this process and `mode`.

    There is one exception: when only the last step fails, the sync of the directory after the rename, the new file is
    in place and whole, but a power cut may still bring the old file back. Raises OSError; no temporary file is left.
    """
    with _synced_directory(path.parent) as directory:
        temporary = f".{path.name}.{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, mode, dir_fd=directory)
        try:
            _write_and_close(file, data, like)
            os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def file_stamp(path: Path) -> FileStamp | None:
    """A value that changes when the file is changed or replaced; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files that killed writers of this file left behind.

    Call this only at start-up, when no process writes the file.
    """
    leftover = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}\.tmp")
    # Errors are ignored: a faulty directory shows when the file itself is read or written.
    with contextlib.suppress(OSError):
        for entry in list(path.parent.iterdir()):
            if leftover.fullmatch(entry.name):
                entry.unlink()


def set_aside(path: Path, reason: str) -> Path:
    """Rename a damaged file to `<name>.damaged-<utc time>[-n]`, log a warning, return the new path. Raises OSError."""
    with _kept_as(path, reason) as target:
        path.replace(target)
    return target


def keep_copy(path: Path, reason: str) -> Path:
    """Give a damaged file a second name as `set_aside` does, log a warning, return that path. Raises OSError.

    The file keeps its own name until it is replaced: until then, every start finds out that its content is lost.
    """
    with _kept_as(path, reason) as target:
        target.unlink()
        target.hardlink_to(path)
    return target


@contextlib.contextmanager
def _kept_as(path: Path, reason: str) -> Iterator[Path]:
    """The reserved name under which the block keeps a damaged file; free again if the block fails."""
    with _synced_directory(path.parent):
        target = _reserve(path)
        try:
            yield target
        except BaseException:
            with contextlib.suppress(OSError):
                target.unlink()
            raise
    event(logger, logging.WARNING, "damaged_file_set_aside", path=path, kept_as=target, reason=reason)


def _reserve(path: Path) -> Path:
    """Create an empty file as the target of a rename: the rename then overwrites this file and no other."""
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


def _write_and_close(file: int, data: bytes, like: os.stat_result | None) -> None:
    try:
        if like is not None:
            os.fchown(file, like.st_uid, like.st_gid)
            os.fchmod(file, stat.S_IMODE(like.st_mode))
        # A nearly full disk accepts a part of the data and refuses the rest at the next call.
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        # Some file systems report a full disk only at close, so the close is inside the caller's try.
        os.close(file)


@contextlib.contextmanager
def _synced_directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory, so that all steps use the same directory even if its path is renamed meanwhile.

    Renames in the directory survive a power cut once this context is left.
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
    """Make the names in a directory survive a power cut."""
    with _synced_directory(path):
        pass


# -- sealed files: a JSON document with a version and a checksum, readable by its owner only --------------------------
#
# The content is parsed only after the envelope matches exactly and the checksum is right, so that no parser ever reads
# a torn or damaged file.

_ENVELOPE: Final = re.compile(rb'\{"sha256":"([0-9a-f]{64})","content":(.*)\}\n', re.DOTALL)


class SealedFileError(ValueError):
    """The bytes of a sealed file are damaged or of another version; the message says which."""


def write_sealed(path: Path, document: Mapping[str, Any]) -> int:
    """Replace the file and return the size of the new one, once on disk. Raises OSError as `write_atomically`."""
    data = seal(document)
    write_atomically(path, data, mode=0o600)
    return len(data)


def seal(document: Mapping[str, Any]) -> bytes:
    """The bytes of the sealed file for a document, which has a `version`."""
    # ASCII with escapes can spell every name that came over the wire, including invalid Unicode.
    content = f"{{{','.join(f'{_json(name)}:{_encoded(value)}' for name, value in document.items())}}}".encode("ascii")
    return enveloped(content)


def _encoded(value: Any) -> str:
    """The JSON of a value; the items of a long list are encoded in chunks, between which other threads may run."""
    if not isinstance(value, list):
        return _json(value)
    chunks = (value[at : at + _ENCODED_AT_ONCE] for at in range(0, len(value), _ENCODED_AT_ONCE))
    return f"[{','.join(_json(chunk)[1:-1] for chunk in chunks)}]"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def enveloped(content: bytes) -> bytes:
    """The bytes of the sealed file for a content."""
    checksum = hashlib.sha256(content).hexdigest().encode("ascii")
    return b'{"sha256":"%b","content":%b}\n' % (checksum, content)


def unseal(data: bytes, version: int) -> dict[str, Any]:
    """The document of a sealed file. Raises SealedFileError if the file is torn, damaged, or of another version."""
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
    written_version = document.get("version") if isinstance(document, dict) else None
    if written_version != version:
        raise SealedFileError(f"version {written_version!r}, this release reads {version}")
    return dict(document)
