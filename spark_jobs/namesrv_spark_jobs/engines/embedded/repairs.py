"""Damaged files and lines: what can be read of them is told apart from the rest, line by line.

A line is read as Spark reads it: its fields have the types of the contract, and what follows its end is nobody's.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.transforms.schema import LINE

_DECODER: Final = json.JSONDecoder()
_LONG: Final = range(-(1 << 63), 1 << 63)
# texts that are numbers
_NAMED: Final = frozenset({"NaN", "Infinity", "-Infinity", "+INF", "INF", "-INF"})
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
                good.write(json.dumps(read) + "\n")


def _read(line: bytes) -> dict[str, object] | None:
    """The fields of a line; None when it is no line of a log."""
    try:
        read, _ = _DECODER.raw_decode(line.decode().strip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict):
        return None
    for name, kind in _NUMBERS.items():
        value = read.get(name)
        if value is None:
            continue
        if kind == "bigint":
            if type(value) is not int or value not in _LONG:
                return None
        elif type(value) not in {int, float} and value not in _NAMED:
            return None
        elif isinstance(value, str) or not math.isfinite(value):
            # no time is of that size
            read[name] = None if name != "mono_ms" else 1e300
    return read
