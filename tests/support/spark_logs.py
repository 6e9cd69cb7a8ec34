"""Heartbeat logs for tests of the report's command: two boots by hand, in files like the daemon's."""

import gzip
import json
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.analysis import Analysis, analyse
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.options import Options
from tests.support.heartbeat_lines import HeartbeatLines, broker, member

# a small grid, because replaying the whole one only takes time
SMALL_GRID: Final = "expiry=60 scan=10 poll=30"
EVERYTHING: Final = Options()
BAD_LINE: Final = '{"v": 1, "seq": 4, "ts_ms": 1772323'
# microseconds of this time do not fit into 64 bits
HUGE_TIME: Final = HeartbeatLines("boot-9", "ns-9").add("scan", 1, ts_ms=9_223_372_036_854_775_807, scan=1).lines[0]


def first_server() -> HeartbeatLines:
    """A broker dies after 60 s and is evicted at 185 s; a client receives the new route at 200 s."""
    lines = HeartbeatLines("boot-1", "ns-1").start().heartbeats(0, 30_000, 60_000)
    lines.route(100, 1, member("broker-a"), member("broker-b")).served(200, 1)
    for at in range(0, 240_001, 30_000):
        lines.heartbeat(at + 10, broker("broker-b"))
    lines.scan(180_000, 36).scan(185_000, 37).evict(185_000, scan=37, silent_ms=125_000)
    return (
        lines.route(185_001, 2, member("broker-b")).served(200_000, 2).add("stop", 240_100, version="0.1.0", dropped=0)
    )


def second_server() -> HeartbeatLines:
    """A second server evicts the same broker, which then comes back."""
    lines = HeartbeatLines("boot-2", "ns-2").start().heartbeats(500, 30_500)
    lines.scan(155_000, 31).evict(155_000, scan=31, silent_ms=124_500).heartbeat(170_000)
    return lines.add("stop", 240_100, version="0.1.0", dropped=0)


_GOOD: Final = HeartbeatLines("b").start().heartbeats(0, 30_000).evict(160_000).lines
TORN_LINE: Final = _GOOD[1][:40]


def damaged_files(folder: Path) -> list[Path]:
    """Write a file with lines of every kind that cannot be read, a repeated, a truncated and an empty one."""
    folder = folder / "dt=2026-03-01" / "hour=00 [x]"
    folder.mkdir(parents=True)
    invalid = _GOOD[1].replace("broker-a", "broker-\udcff")
    newer = json.dumps({**json.loads(HeartbeatLines("c").heartbeat(5).lines[0]), "v": 3, "colour": "red"})
    unknown = HeartbeatLines("d").add("teleported", 5).lines[0]
    # numbers whose sums or microseconds would not fit into 64 bits
    huge = [
        HeartbeatLines("e").add("scan", 1, ts_ms=(1 << 63) - 1, scan=1).lines[0],
        HeartbeatLines("f").add("scan", 1e300, scan=1, ts_ms=0).lines[0],
        HeartbeatLines("g").add("dropped", 1, count=(1 << 63) - 1).lines[0],
    ]
    missing = '{"v":1,"seq":1,"event":"heartbeat"}'
    wrong = [
        HeartbeatLines("h").add("scan", 1, seq="1").lines[0],
        HeartbeatLines("h").add("scan", 1, seq=1.5).lines[0],
        HeartbeatLines("h").add("scan", 1, mono_ms=[1]).lines[0],
    ]
    lines = [*_GOOD, "", invalid, newer, unknown, missing, *huge, "x[]", *wrong, TORN_LINE]
    repeated = "".join(f"{line}\n" for line in HeartbeatLines("e").start().heartbeat(1).lines) * 500
    files = {
        "a.jsonl.open": "\n".join(lines).encode(errors="surrogateescape"),
        "b.jsonl": "".join(f"{line}\n" for line in _GOOD).encode(),
        "c.jsonl.gz": gzip.compress(repeated.encode())[:-30],
        "empty.jsonl": b"",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def write_plain(folder: Path, name: str, lines: list[str]) -> Path:
    """Write a plain file of the first hour."""
    file = folder / "dt=2026-03-01" / "hour=00" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def write_closed(folder: Path, name: str, lines: list[str], *, torn_by: int = 0) -> Path:
    """Write a closed file, optionally without its last bytes."""
    file = folder / "dt=2026-03-01" / "hour=00" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    file.write_bytes(whole[: len(whole) - torn_by])
    return file


def write_boots(folder: Path, *boots: HeartbeatLines) -> list[str]:
    """Write a plain file for each boot."""
    return [str(write_plain(folder, f"{boot.nameserver}-{boot.boot}-1.jsonl", boot.lines)) for boot in boots]


def analysed(engine: Engine, folder: Path, *boots: HeartbeatLines, options: Options = EVERYTHING) -> Analysis:
    """The analysis of the logs of these boots, which are written below a folder."""
    return analyse(engine, write_boots(folder / "logs", *boots), options, lambda _step: None)


def write_log(folder: Path) -> Path:
    """Write the logs of both servers, with one incomplete line and one open file."""
    first = first_server().lines
    write_closed(folder, "ns-1-boot-1-1.jsonl.gz", first[:6])
    write_plain(folder, "ns-1-boot-1-2.jsonl", [*first[6:], BAD_LINE])
    write_plain(folder, "ns-2-boot-2-1.jsonl.open", second_server().lines)
    return folder
