"""A JSON document in a file, with a version and a checksum; replaced as a whole, for its owner only.

Nothing but the exact envelope is looked into, and nothing in it before its checksum is right: a torn or damaged file
meets no parser.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from namesrv_runtime.durable_file import write_atomically

_ENVELOPE: Final = re.compile(rb'\{"sha256":"([0-9a-f]{64})","content":(.*)\}\n', re.DOTALL)


class SealedFileError(ValueError):
    """These bytes are not what was written; the message says why."""


def write_sealed(path: Path, document: Mapping[str, Any]) -> int:
    """Replace the file; blocks until it is on disk. Returns its size.

    Raises:
        OSError: it could not be written, and is as it was.
    """
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
    """The document of a file, as it was sealed.

    Raises:
        SealedFileError: torn, damaged, or of another version.
    """
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
