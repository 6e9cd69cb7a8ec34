"""The command line: its options, read and checked."""

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from namesrv_spark_jobs.command.gates import Gate, parse_gate
from namesrv_spark_jobs.command.session import LOCAL_MASTER, is_submitted
from namesrv_spark_jobs.command.submit import submit_line
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.options import DEFAULT_GRID, Options, parse_grid

_T = TypeVar("_T")

# a thousandth of a second to a day
_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.001, 86_400

# five digits are a year with something wrong, thirteen are milliseconds
_MILLISECONDS: Final = re.compile(r"\d{9,15}")

_EPILOG: Final = """\
exit codes:
  0    the report is written, and no gate found anything
  1    the report is written, and a gate (--fail-if, --max-bad-ratio) failed
  2    wrong usage, no readable input, no Java, no cluster: nothing is written
  70   a bug in this program, or Spark failed: nothing is written
  130  interrupted: DIR is as it was before

examples:
  namesrv-staleness heartbeats/ --out report
  namesrv-staleness 'heartbeats/dt=2026-03-*' --since 2026-03-01T07:00 --cluster c1 --out report
  namesrv-staleness heartbeats/ --out report --fail-if 'p99>170' --fail-if 'false>0' --max-bad-ratio 0.001
  namesrv-staleness heartbeats/ --out report --follow      # repeatedly: reads only new files
"""


def parser() -> argparse.ArgumentParser:
    """All options; each group is a subject."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} INPUT... --out DIR [options]",
        description="Report how long stale routes lasted, from the heartbeat logs of NameServers.",
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
    made.add_argument("--debug", action="store_true", help="show Spark's log, and tracebacks of errors in Java")
    made.add_argument(
        "--out", metavar="DIR", required=True, help="directory for the report; an older report in it is replaced"
    )
    which = made.add_argument_group("which events")
    moment = _checked(moment_ms)
    which.add_argument(
        "--since",
        metavar="TIME",
        type=moment,
        help="from this time on: 2026-03-01, 2026-03-01T07:30 (UTC) or milliseconds",
    )
    which.add_argument("--until", metavar="TIME", type=moment, help="before this time")
    for name, what in (("cluster", "its brokers"), ("topic", "its clients"), ("nameserver", "its log")):
        which.add_argument(f"--{name}", metavar="NAME", action="append", default=[], help=f"only {what} (repeatable)")


def _add_what_if(made: argparse.ArgumentParser) -> None:
    what_if = made.add_argument_group("settings")
    what_if.add_argument(
        "--poll",
        metavar="SECONDS",
        type=_checked(_milliseconds),
        default=30_000,
        help="how often clients poll for routes; part of the bound that staleness is compared with (default: 30)",
    )
    what_if.add_argument(
        "--what-if",
        metavar="GRID",
        type=_checked(parse_grid),
        default=parse_grid(DEFAULT_GRID),
        help=f"replay the log under these settings, in seconds; phi are thresholds (default: '{DEFAULT_GRID}')",
    )


def _add_output(made: argparse.ArgumentParser) -> None:
    shown = made.add_argument_group("output")
    shown.add_argument("-o", "--output", choices=("table", "json"), default="table", help="on stdout (default: table)")
    shown.add_argument("--quiet", action="store_true", help="print nothing but errors")
    shown.add_argument(
        "--redact", action="store_true", help="replace addresses and client names by hashes throughout the report"
    )
    shown.add_argument(
        "--follow",
        action="store_true",
        help="INPUT is a directory of closed logs: read what is new since the last run with DIR, report on everything",
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
        " with ms, s, m or h (repeatable)",
    )
    gates.add_argument(
        "--max-bad-ratio", metavar="RATIO", type=_ratio, help="largest share of bad lines that passes, 0 to 1"
    )


def add_spark(made: argparse.ArgumentParser) -> None:
    """Where it runs: options that spark-submit has as well."""
    spark = made.add_argument_group("Spark")
    spark.add_argument(
        "--master", metavar="URL", help="local[N], spark://HOST:PORT, yarn, k8s://… (default: local[*], spark-submit's)"
    )
    spark.add_argument("--deploy-mode", choices=("client", "cluster"), help="only for --print-submit; otherwise client")
    spark.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        type=_checked(_pair),
        action="append",
        default=[],
        help="any Spark setting (repeatable)",
    )
    spark.add_argument("--print-submit", action="store_true", help="print the equivalent spark-submit command and exit")


def moment_ms(text: str) -> int:
    """`2026-03-01`, `2026-03-01T07:30`, with or without a zone (UTC), or milliseconds since 1970.

    Raises:
        ValueError: it is none of these.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"not a valid time: {text} (for example 2026-03-01, 2026-03-01T07:30 (UTC) or milliseconds)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


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
            f"{text!r} is not a number of seconds from {_SHORTEST_POLL_SECONDS:g} to {_LONGEST_POLL_SECONDS:,}"
        )
    return round(seconds * 1000)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a ratio from 0 to 1")
    return ratio


def _checked(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Argparse shows the text of its own errors only."""

    def checked(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one run does."""

    inputs: tuple[str, ...]
    out: str
    options: Options
    gates: tuple[Gate, ...]
    max_bad_ratio: float | None
    output: str
    quiet: bool
    # Spark's log and Java's traces are shown
    debug: bool
    follow: bool
    # None: spark-submit's, or else local[*]
    master: str | None
    conf: dict[str, str]
    # the spark-submit line that does the same; None when nobody asked for it
    submit_line: str | None


def read_settings(argv: Sequence[str]) -> Settings:
    """Read the command line; argparse itself ends the process on --help and on errors.

    Raises:
        UsageError: what was given does not go together.
    """
    given = parser().parse_args(argv)
    try:
        options = _options(given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if given.deploy_mode == "cluster" and not given.print_submit and not is_submitted():
        raise UsageError("--deploy-mode cluster needs spark-submit; --print-submit prints the command")
    return Settings(
        inputs=tuple(given.inputs),
        out=given.out,
        options=options,
        gates=tuple(given.fail_if),
        max_bad_ratio=given.max_bad_ratio,
        output=given.output,
        quiet=given.quiet,
        debug=given.debug,
        follow=given.follow,
        master=given.master,
        conf=dict(given.conf),
        submit_line=_submit_line(given, argv) if given.print_submit else None,
    )


def _options(given: argparse.Namespace) -> Options:
    return Options(
        since_ms=given.since,
        until_ms=given.until,
        clusters=tuple(given.cluster),
        topics=tuple(given.topic),
        nameservers=tuple(given.nameserver),
        poll_ms=given.poll,
        what_if=given.what_if,
        redact=given.redact,
    )


def _submit_line(given: argparse.Namespace, argv: Sequence[str]) -> str:
    """spark-submit takes what is Spark's, the report the rest, in the order in which it was given."""
    of_spark = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_spark(of_spark)
    _, rest = of_spark.parse_known_args(list(argv))
    return submit_line(given.master or LOCAL_MASTER, given.deploy_mode, dict(given.conf), rest)
