"""Command line of the generator: `python -m tools.heartbeat_logs --lines 20_000_000 --out DIR`."""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Final

from tools.heartbeat_logs.server import write_log
from tools.heartbeat_logs.settings import DAY, SECOND, Settings
from tools.heartbeat_logs.truth import truth_lines
from tools.heartbeat_logs.world import drawn

TRUTH: Final = "_truth.jsonl"
LINES: Final = 1_000_000
# Number of brokers for that many lines; smaller logs have fewer brokers, so that they cover more time.
MOST_BROKERS: Final = 1000
LINES_PER_BROKER: Final = 2000
SHOWN_EVERY_SECONDS: Final = 0.5

# Number of lines written so far by all processes.
_written: Any = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write logs and their truth."""
    given = _parser().parse_args(arguments)
    try:
        settings = settings_of(given)
    except ValueError as error:
        print(f"heartbeat_logs: {error}", file=sys.stderr)  # noqa: T201 - a command talks
        return 2
    if given.out.exists() and any(given.out.iterdir()):
        print(f"heartbeat_logs: {given.out} is not empty", file=sys.stderr)  # noqa: T201
        return 2
    began = time.monotonic()
    lines = generate(settings, given.out, processes=given.processes, is_shown=sys.stderr.isatty())
    seconds = time.monotonic() - began
    print(f"{lines:,} lines in {seconds:.1f} s in {given.out}; the truth is in {TRUTH}")  # noqa: T201
    return 0


def generate(settings: Settings, out: Path, *, processes: int = 2, is_shown: bool = False) -> int:
    """Write the logs of all servers and the truth into a directory; returns the number of lines."""
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    written = context.Value("q", 0)
    workers = min(processes, settings.nameservers)
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


def settings_of(given: argparse.Namespace) -> Settings:
    """The settings of a command line; missing values are computed from the number of lines.

    Raises:
        ValueError: the options contradict each other.
    """
    values = {name: value for name, value in vars(given).items() if name in Settings.__dataclass_fields__}
    for name in ("heartbeat", "expiry", "scan", "poll", "session"):
        values[name] = round(values[name] * SECOND)
    values["brokers"] = _brokers(given)
    settings = Settings(**values)
    seconds = given.lines / settings.lines_per_second
    if given.days and given.brokers is None:
        seconds = given.days * DAY / SECOND
    return Settings(**{**values, "duration": max(SECOND, round(seconds * SECOND))})


def _brokers(given: argparse.Namespace) -> int:
    if given.brokers is not None:
        return int(given.brokers)
    if not given.days:
        return int(max(4, min(MOST_BROKERS, given.lines // LINES_PER_BROKER)))
    seconds = given.days * DAY / SECOND
    heartbeats: float = given.lines / given.nameservers - seconds / given.scan
    return int(max(4, round(heartbeats * given.heartbeat / seconds * (1 - given.skew))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.heartbeat_logs",
        description="Write heartbeat logs of a made-up fleet, and its truth. The same seed gives the same bytes.",
    )
    number = lambda text: int(text.replace("_", ""))  # noqa: E731
    parser.add_argument("--lines", type=number, default=LINES, metavar="N", help="about so many (default 1_000_000)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="an empty or new directory")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="at a time; one writes a server's log")
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument("--days", type=float, metavar="D", help="of the log; without --brokers it sets their number")
    fleet.add_argument("--brokers", type=number, metavar="N")
    fleet.add_argument("--members", type=int, default=2, metavar="N", help="brokers of one name (default 2)")
    fleet.add_argument("--clusters", type=int, default=2, metavar="N")
    fleet.add_argument("--nameservers", type=int, default=2, metavar="N")
    fleet.add_argument("--clients", type=number, default=200, metavar="N")
    fleet.add_argument(
        "--skew", type=float, default=0.0, metavar="PART", help="of all heartbeats, from one broker (default 0)"
    )
    fleet.add_argument("--native", type=float, default=0.5, metavar="PART", help="of the brokers, with an agent_id")
    times = parser.add_argument_group("times, in seconds")
    times.add_argument("--heartbeat", type=float, default=30, metavar="S")
    times.add_argument("--expiry", type=float, default=120, metavar="S")
    times.add_argument("--scan", type=float, default=10, metavar="S")
    times.add_argument("--poll", type=float, default=30, metavar="S")
    times.add_argument(
        "--session", type=float, default=0, metavar="S", help="of a client, on average (default: for ever)"
    )
    times.add_argument("--jitter", type=float, default=0.0, metavar="PART", help="of heartbeats and polls, at most")
    faults = parser.add_argument_group("faults")
    faults.add_argument("--deaths", type=float, default=2.0, metavar="N", help="of a broker in a day (default 2)")
    for kind, weight in (("crash", 4.0), ("silence", 3.0), ("unregister", 2.0), ("false_silence", 1.0)):
        flag = f"--{kind.replace('_', '-')}"
        faults.add_argument(
            flag, type=float, default=weight, metavar="WEIGHT", help=f"of all deaths (default {weight:g})"
        )
    faults.add_argument("--missed", type=float, default=0.0, metavar="PART", help="of the heartbeats")
    faults.add_argument("--restarts", type=int, default=0, metavar="N", help="of each server")
    faults.add_argument("--lates", type=int, default=0, metavar="N", help="stalls of each server")
    faults.add_argument("--clock-steps", type=int, default=0, metavar="N", help="of each server's wall clock")
    faults.add_argument("--torn", action="store_true", help="servers crash instead of stopping")
    faults.add_argument("--duplicates", type=float, default=0.0, metavar="PART", help="of the lines")
    faults.add_argument("--out-of-order", type=float, default=0.0, metavar="PART", help="of the lines")
    parser.add_argument("--log-version", type=int, choices=(1, 2), default=2, help="of the log's lines (default 2)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--gzip", action="store_true", default=True, help="closed files are compressed (default)")
    form.add_argument("--plain", dest="gzip", action="store_false", help="they are not")
    return parser
