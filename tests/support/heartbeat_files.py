"""What is in a heartbeat log? Read here without the code under test."""

import gzip
import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_log(root: Path) -> list[Line]:
    """All whole lines below a folder, by boot and number; a torn last line is left out."""
    lines: list[Line] = []
    for path in root.rglob("[!.]*.jsonl*"):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines += [json.loads(line) for line in text.split(b"\n")[:-1]]
    return sorted(lines, key=lambda line: (line["boot_id"], line["seq"]))


def of(lines: list[Line], *events: str) -> list[Line]:
    """The lines of some events."""
    return [line for line in lines if line["event"] in events]


def only(line: Line, *names: str) -> list[Any]:
    """Some fields of a line."""
    return [line[name] for name in names]
