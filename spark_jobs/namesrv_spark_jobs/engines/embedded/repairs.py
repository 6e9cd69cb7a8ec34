"""Damaged files: their lines are split into readable and bad ones.

A line is read as Spark reads it: its fields must have the types of the contract, and text after the JSON is ignored.
Only a field that a line has twice is read as DuckDB reads it elsewhere.
"""

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.transforms.schema import LINE

# the first value of a field counts
_DECODER: Final = json.JSONDecoder(object_pairs_hook=lambda fields: dict(reversed(fields)))
_LONG: Final = range(-(1 << 63), 1 << 63)
# strings that count as numbers, as in Spark
_NAMED: Final = frozenset({"NaN", "Infinity", "-Infinity", "+INF", "INF", "-INF"})
# a number larger than any time, in place of infinite numbers
_FAR: Final = 1e300
_NUMBERS: Final = {name: kind for name, kind in LINE.items() if kind != "string"}


def lines_of(file: Path) -> Iterator[bytes]:
    """The lines of a file, up to the place where it is damaged."""
    with gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb") as stream:
        while True:
            try:
                line = stream.readline()
            except (EOFError, OSError, zlib.error):
                return
            if not line:
                return
            yield line.rstrip(b"\n")


def split(file: Path, clean: Path, bad: Path, name: str) -> None:
    """Write the readable lines into `clean`, and the others as `corrupt_line` with their `file` (`name`) into `bad`."""
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
    """The line as JSON that DuckDB reads, too; None for a bad line."""
    try:
        read, _ = _DECODER.raw_decode(line.removeprefix(codecs.BOM_UTF8).decode().strip())
        if not isinstance(read, dict) or not all(_fits(read.get(name), kind) for name, kind in _NUMBERS.items()):
            return None
        text = json.dumps({name: _finite(value) if name in _NUMBERS else value for name, value in read.items()})
        # a lone surrogate is an error, although JSON has an escape for it
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
    """The number; `_FAR` in place of NaN, infinity and anything larger."""
    if value is None or (not isinstance(value, str) and abs(value) < _FAR):
        return value
    return _FAR
