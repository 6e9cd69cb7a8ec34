"""Command line of the generator: `python -m tools.heartbeat_logs --lines 20_000_000 --out DIR`."""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Write logs and their truth."""
    given = _parser().parse_args(arguments)
    if given.out.exists() and any(given.out.iterdir()):
        print(f"heartbeat_logs: {given.out} is not empty", file=sys.stderr)  # noqa: T201 - a command talks
        return 2
    began = time.monotonic()
    lines = generate(settings_of(given.lines, given.seed), given.out)
    seconds = time.monotonic() - began
    print(f"{lines:,} lines in {seconds:.1f} s in {given.out}; the truth is in {TRUTH}")  # noqa: T201
    return 0


def generate(settings: Settings, out: Path) -> int:
    """Write the logs of all servers and the truth into a directory; returns the number of lines."""
    out.mkdir(parents=True, exist_ok=True)
    world = drawn(settings)
    jobs = [(settings, world, number, out) for number in range(settings.nameservers)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        written = pool.starmap(write_log, jobs, chunksize=1)
    removals = [removal for _, some in written for removal in some]
    with (out / TRUTH).open("w", encoding="utf-8") as file:
        file.writelines(truth_lines(world, removals))
    return sum(lines for lines, _ in written)


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
