"""Command line of the generator: `python -m tools.heartbeat_logs --lines 20_000_000 --out DIR`."""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

from tools.heartbeat_logs.server import write_log
from tools.heartbeat_logs.settings import SECOND, Settings
from tools.heartbeat_logs.truth import truth_lines
from tools.heartbeat_logs.world import drawn

TRUTH: Final = "_truth.jsonl"
LINES: Final = 1_000_000
# Number of brokers for that many lines; smaller logs have fewer brokers, so that they cover more time.
MOST_BROKERS: Final = 1000
LINES_PER_BROKER: Final = 2000
CLIENTS: Final = 200
# Number of servers whose logs are written at a time.
PROCESSES: Final = 2
SHOWN_EVERY_SECONDS: Final = 0.5

# Number of lines written so far by all processes.
_written: Any = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write logs and their truth."""
    given = _parser().parse_args(arguments)
    if given.out.exists() and any(given.out.iterdir()):
        print(f"heartbeat_logs: {given.out} is not empty", file=sys.stderr)  # noqa: T201 - a command talks
        return 2
    began = time.monotonic()
    lines = generate(settings_of(given.lines, given.seed), given.out, is_shown=sys.stderr.isatty())
    seconds = time.monotonic() - began
    print(f"{lines:,} lines in {seconds:.1f} s in {given.out}; the truth is in {TRUTH}")  # noqa: T201
    return 0


def generate(settings: Settings, out: Path, *, is_shown: bool = False) -> int:
    """Write the logs of all servers and the truth into a directory; returns the number of lines."""
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    written = context.Value("q", 0)
    workers = min(PROCESSES, settings.nameservers)
    with context.Pool(workers, _begin, (written,)) as pool:
        jobs = [pool.apply_async(_write_one, (settings, number, out)) for number in range(settings.nameservers)]
        expected = max(1, round(settings.lines_per_second * settings.duration / SECOND))
        for job in jobs:
            while not job.ready():
                job.wait(SHOWN_EVERY_SECONDS)
                if is_shown:
                    print(f"\r{written.value:,} lines ({written.value / expected:.0%})", end="", file=sys.stderr)  # noqa: T201
        removals = [removal for job in jobs for removal in job.get()]
    if is_shown:
        print("\r\x1b[K", end="", file=sys.stderr)  # noqa: T201
    with (out / TRUTH).open("w", encoding="utf-8") as file:
        file.writelines(truth_lines(drawn(settings), removals))
    return int(written.value)


def _begin(written: "Synchronized[int]") -> None:
    globals()["_written"] = written


def _write_one(settings: Settings, nameserver: int, out: Path) -> list[dict[str, Any]]:
    def wrote(lines: int) -> None:
        with _written.get_lock():
            _written.value += lines

    return write_log(settings, drawn(settings), nameserver, out, wrote)


def settings_of(lines: int, seed: int) -> Settings:
    """The settings of about so many lines."""
    brokers = max(4, min(MOST_BROKERS, lines // LINES_PER_BROKER))
    settings = Settings(seed=seed, brokers=brokers, clients=CLIENTS, scan=10 * SECOND)
    return replace(settings, duration=max(SECOND, round(lines / settings.lines_per_second * SECOND)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.heartbeat_logs",
        description="Write heartbeat logs of a made-up fleet, and its truth. The same seed gives the same bytes.",
    )
    number = lambda text: int(text.replace("_", ""))  # noqa: E731
    parser.add_argument("--lines", type=number, default=LINES, metavar="N", help="about so many (default 1_000_000)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="an empty or new directory")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    return parser
