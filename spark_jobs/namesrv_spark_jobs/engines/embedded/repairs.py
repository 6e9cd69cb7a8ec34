"""Damaged files and lines: what can be read of them is told apart from the rest, line by line.

A line is read as Spark reads it: its fields have the types of the contract, and what follows its end is nobody's.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.transforms.schema import LINE

_DECODER: Final = json.JSONDecoder()
_LONG: Final = range(-(1 << 63), 1 << 63)
# texts that are numbers
_NAMED: Final = frozenset({"NaN", "Infinity", "-Infinity", "+INF", "INF", "-INF"})
# no time is of that size
_FAR: Final = 1e300
_NUMBERS: Final = {name: kind for name, kind in LINE.items() if kind != "string"}


def lines_of(file: Path) -> Iterator[bytes]:
    """The lines of a file, up to where it is damaged."""
    with gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb") as stream:
        while True:
            try:
                line = stream.readline()
            except (EOFError, OSError, zlib.error):
                return
            if not line:
                return
            yield line.rstrip(b"\n")


def is_damaged(file: Path) -> bool:
    """Whether a compressed file cannot be read to its end."""
    if not file.name.endswith(".gz"):
        return False
    try:
        with gzip.open(file, "rb") as stream:
            while stream.read(1 << 20):
                pass
    except (EOFError, OSError, zlib.error):
        return True
    return False


def split(file: Path, clean: Path, bad: Path, name: str) -> None:
    """Write the lines that can be read, and of each of the rest `corrupt_line` and its `file`, which is `name`."""
    with clean.open("w", encoding="utf-8") as good, bad.open("w", encoding="utf-8") as others:
        for line in lines_of(file):
            if not line.strip():
                continue
            read = _read(line)
            if read is None:
                shown = {"file": name, "corrupt_line": line.decode(errors="replace")}
                others.write(json.dumps(shown) + "\n")
            else:
                good.write(read + "\n")


def _read(line: bytes) -> str | None:
    """The line as DuckDB reads it, too; None when it is no line of a log."""
    try:
        read, _ = _DECODER.raw_decode(line.decode().strip())
        if not isinstance(read, dict) or not all(_fits(read.get(name), kind) for name, kind in _NUMBERS.items()):
            return None
        text = json.dumps({name: _finite(value) if name in _NUMBERS else value for name, value in read.items()})
        # half of a pair of characters is none, although JSON has an escape for it
        json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return text


def _fits(value: object, kind: str) -> bool:
    if value is None:
        return True
    if kind == "bigint":
        return type(value) is int and value in _LONG
    return type(value) in {int, float} or (isinstance(value, str) and value in _NAMED)


def _finite(value: float | str | None) -> float | None:
    """A number that is one; others are farther away than any time."""
    if value is None or (not isinstance(value, str) and abs(value) < _FAR):
        return value
    return _FAR
