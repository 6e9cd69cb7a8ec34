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


def by_topic(lines: list[Line], event: str) -> list[Line]:
    """One dict per topic for the lines of an event; for routes with all `brokers`, sorted by name."""
    found: list[Line] = []
    routes: dict[str, dict[str, Line]] = {}
    for line in of(lines, event):
        if event == "route":
            for change in line["changes"]:
                for topic in change["topics"]:
                    route = routes.setdefault(topic, {})
                    if change.get("whole"):
                        route.clear()
                    for name in change.get("unset", []):
                        del route[name]
                    route.update((broker["name"], broker) for broker in change.get("set", []))
                    brokers = [route[name] for name in sorted(route)]
                    found.append({"topic": topic, "revision": line["revision"], "brokers": brokers})
        else:
            lists = [line[name] for name in ("topics", "revisions", "counts") if name in line]
            names = ("topic", "revision", "count")
            found += [line | dict(zip(names, each, strict=False)) for each in zip(*lists, strict=True)]
    return found


def only(line: Line, *names: str) -> list[Any]:
    """Some fields of a line."""
    return [line[name] for name in names]
