"""What can be said of a log file without Spark: its short name, and whether its gzip ends where it should."""

import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

PARQUET_SUFFIX: Final = ".parquet"
_GLOB: Final = re.compile(r"([*?\[\]{}\\])")
_SHORT: Final = re.compile(r"(?:[^/]+=[^/]*/)*[^/]+$")
_CHUNK: Final = 1 << 20
_SAMPLE: Final = 1 << 18
# how far the beginning's compression may lead astray
_LEAST, _MOST = 0.75, 1.33


def literal(path: str) -> str:
    """The path as Spark takes it: what would be a pattern in it is escaped."""
    return path if is_url(path) else _GLOB.sub(r"\\\1", path)


def is_url(path: str) -> bool:
    """Whether it is for Spark alone to open."""
    scheme = urlsplit(path).scheme
    return len(scheme) > 1 and scheme != "file"


def short_name(path: str) -> str:
    """The base name with the folders of its day and hour."""
    plain = unquote(path)
    found = _SHORT.search(plain.rstrip("/"))
    return found[0] if found else plain


def truncated(files: Sequence[str]) -> list[str]:
    """The local gzip files that end too early, or are damaged: Spark reads them up to there, and says nothing."""
    return [file for file in files if file.endswith(".gz") and not is_url(file) and not _is_whole(Path(file))]


def _is_whole(path: Path) -> bool:
    """Whether all of it decompresses.

    To decompress everything here would take as long as Spark takes. The last four bytes say how long the content is;
    behind a cut they are anything. Where they fit what the beginning compresses to, they are believed.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
            content = zlib.decompressobj(wbits=31).decompress(head)
            file.seek(-4, os.SEEK_END)
            said = int.from_bytes(file.read(4), "little")
            expected = len(content) * size / len(head)
            if size > _SAMPLE and _LEAST * expected < said < _MOST * expected:
                return True
            file.seek(0)
            return _decompresses(file)
    except (OSError, ZeroDivisionError, zlib.error):
        return False


def _decompresses(file: BinaryIO) -> bool:
    """Whether all members do; what comes out is thrown away at once."""
    member = zlib.decompressobj(wbits=31)
    while chunk := file.read(_CHUNK):
        while chunk:
            member.decompress(chunk)
            chunk = member.unused_data
            if member.eof and chunk:
                member = zlib.decompressobj(wbits=31)
    return member.eof
