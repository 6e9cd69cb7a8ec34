"""A reader of heartbeat logs that is independent of the code under test."""

import gzip
import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_log(root: Path, *, without: str = "/") -> list[Line]:
    """All complete lines below a folder, sorted by boot and number; an incomplete last line is left out.

    A server may compress its files meanwhile: each file is read once, in one of its two forms.
    """
    lines: list[Line] = []
    paths = set(root.rglob("[!.]*.jsonl*"))
    for path in paths:
        if without in path.name or (path.suffix == ".gz" and path.with_suffix(".open") in paths):
            continue
        lines += [json.loads(line) for line in _text(path).split(b"\n")[:-1]]
    return sorted(lines, key=lambda line: (line["boot_id"], line["seq"]))


def _text(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except FileNotFoundError:
        if path.suffix != ".open":
            raise
        return _text(path.with_suffix(".gz"))


def of(lines: list[Line], *events: str) -> list[Line]:
    """The lines of some events."""
    return [line for line in lines if line["event"] in events]


def only(line: Line, *names: str) -> list[Any]:
    """Some fields of a line."""
    return [line[name] for name in names]
