"""What may stand on the command line?"""

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

from namesrv_spark_jobs.command.gates import parse_gate
from namesrv_spark_jobs.grid import DEFAULT_GRID, parse_grid
from namesrv_spark_jobs.reports import PROGRAM
from namesrv_spark_jobs.times import moment_ms

_T = TypeVar("_T")

# a thousandth of a second to a day
_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.001, 86_400

_EPILOG: Final = """\
exit codes:
  0    the report is written, and no gate found anything
  1    the report is written, and a gate (--fail-if, --max-bad-ratio) says no
  2    wrong usage, no input, no Java, no cluster: nothing is written
  70   a bug of this program
  130  interrupted: what was in DIR before is untouched

examples:
  namesrv-staleness heartbeats/ --out report
  namesrv-staleness 'heartbeats/dt=2026-03-*' --since 2026-03-01T07:00 --cluster c1 --out report
  namesrv-staleness heartbeats/ --out report --fail-if 'p99>170' --fail-if 'false>0' --max-bad-ratio 0.001
  namesrv-staleness heartbeats/ --out report --follow      # again and again: takes only files that are new
"""


def parser() -> argparse.ArgumentParser:
    """All options; each group is a subject."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} INPUT... --out DIR [options]",
        description="How long did stale routes last? Reads the heartbeat logs of NameServers, writes a report.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_data(made)
    _add_what_if(made)
    _add_output(made)
    _add_gates(made)
    add_spark(made)
    return made


def _add_data(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="log files (.jsonl .jsonl.gz .open .parquet), directories of them, globs, or URLs that Spark can open",
    )
    made.add_argument("--out", metavar="DIR", required=True, help="where the report goes; an older report is replaced")
    which = made.add_argument_group("which events")
    moment = _checked(moment_ms)
    which.add_argument(
        "--since", metavar="TIME", type=moment, help="from then on: 2026-03-01, 2026-03-01T07:30 (UTC), or milliseconds"
    )
    which.add_argument("--until", metavar="TIME", type=moment, help="before then")
    for name, what in (("cluster", "brokers of it"), ("topic", "clients of it"), ("nameserver", "its log")):
        which.add_argument(
            f"--{name}", metavar="NAME", action="append", default=[], help=f"only {what} (may be given again)"
        )


def _add_what_if(made: argparse.ArgumentParser) -> None:
    what_if = made.add_argument_group("settings")
    what_if.add_argument(
        "--poll",
        metavar="SECONDS",
        type=_checked(_milliseconds),
        default=30_000,
        help="how often clients ask for routes: a part of the bound that staleness is held against (default: 30)",
    )
    what_if.add_argument(
        "--what-if",
        metavar="GRID",
        type=_checked(parse_grid),
        default=parse_grid(DEFAULT_GRID),
        help=f"replay the log under these settings, in seconds; phi has thresholds (default: '{DEFAULT_GRID}')",
    )


def _add_output(made: argparse.ArgumentParser) -> None:
    shown = made.add_argument_group("output")
    shown.add_argument("-o", "--output", choices=("table", "json"), default="table", help="on stdout (default: table)")
    shown.add_argument("--quiet", action="store_true", help="nothing on stdout and stderr but errors")
    shown.add_argument(
        "--redact", action="store_true", help="hashes in place of addresses and client names, everywhere in the report"
    )
    shown.add_argument(
        "--follow",
        action="store_true",
        help="INPUTs are directories of closed logs; take in what is new since the last run into DIR, report on all",
    )


def _add_gates(made: argparse.ArgumentParser) -> None:
    gates = made.add_argument_group("gates (exit code 1; the report is written all the same)")
    gates.add_argument(
        "--fail-if",
        metavar="COND",
        type=_checked(parse_gate),
        action="append",
        default=[],
        help="such as 'p99>45', 'client.p95>2m', 'over_bound>0', 'false>0'; durations are seconds unless they end"
        " with ms, s, m or h (may be given again)",
    )
    gates.add_argument("--max-bad-ratio", metavar="RATIO", type=_ratio, help="most bad lines of all lines, 0 to 1")


def add_spark(made: argparse.ArgumentParser) -> None:
    """Where it runs: what spark-submit takes, too."""
    spark = made.add_argument_group("Spark")
    spark.add_argument(
        "--master", metavar="URL", help="local[N], spark://HOST:PORT, yarn, k8s://… (default: local[*], spark-submit's)"
    )
    spark.add_argument("--deploy-mode", choices=("client", "cluster"), help="for --print-submit; here it is client")
    spark.add_argument(
        "--conf", metavar="KEY=VALUE", type=_checked(_pair), action="append", default=[], help="any setting of Spark"
    )
    spark.add_argument("--print-submit", action="store_true", help="print the spark-submit line that does the same")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _milliseconds(text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_POLL_SECONDS <= seconds <= _LONGEST_POLL_SECONDS:
        raise ValueError(
            f"{text!r} is no number of seconds from {_SHORTEST_POLL_SECONDS:g} to {_LONGEST_POLL_SECONDS:,}"
        )
    return round(seconds * 1000)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no ratio from 0 to 1")
    return ratio


def _checked(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Argparse shows the text of its own errors only."""

    def checked(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked
