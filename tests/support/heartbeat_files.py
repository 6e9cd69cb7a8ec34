"""A reader of heartbeat logs that is independent of the code under test."""

import gzip
import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_log(root: Path, *, without: str = "/") -> list[Line]:
    """All complete lines below a folder, sorted by boot and number; an incomplete last line is left out."""
    lines: list[Line] = []
    for path in root.rglob("[!.]*.jsonl*"):
        if without in path.name:
            continue
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines += [json.loads(line) for line in text.split(b"\n")[:-1]]
    return sorted(lines, key=lambda line: (line["boot_id"], line["seq"]))


def of(lines: list[Line], *events: str) -> list[Line]:
    """The lines of some events."""
    return [line for line in lines if line["event"] in events]


def only(line: Line, *names: str) -> list[Any]:
    """Some fields of a line."""
    return [line[name] for name in names]
