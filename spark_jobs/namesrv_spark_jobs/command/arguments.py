"""The command line of `namesrv-staleness`: the options, and their checks."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from namesrv_spark_jobs.command.gates import Gate, parse_gate
from namesrv_spark_jobs.command.session import LOCAL_MASTER, is_submitted
from namesrv_spark_jobs.command.submit import submit_line
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.options import DEFAULT_GRID, Options, WhatIf, parse_grid

_T = TypeVar("_T")

# the values that --engine may have
EMBEDDED: Final = "embedded"
SPARK: Final = "spark"
AUTO: Final = "auto"

_EPILOG: Final = """\
exit codes:
  0    the report is written, and no gate failed
  1    the report is written, and a gate (--fail-if, --max-bad-ratio) failed, or standard output cannot be written to
  2    wrong usage, no readable input, no engine: nothing is written
  70   a bug in this program, or the engine failed: nothing is written
  130  interrupted: DIR is unchanged

examples:
  namesrv-staleness heartbeats/ --out report
  namesrv-staleness 'heartbeats/dt=2026-03-*' --since 2026-03-01T07:00 --cluster c1 --out report
  namesrv-staleness heartbeats/ --out report --fail-if 'p99>170' --fail-if 'false>0' --max-bad-ratio 0.001
  namesrv-staleness heartbeats/ --out report --follow      # repeatedly: reads only new files
  namesrv-staleness compare before/ after/ --out changes   # see `compare --help`
  namesrv-staleness compact heartbeats/                    # smaller and quicker to read; see `compact --help`
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one run."""

    inputs: tuple[str, ...]
    out: str
    options: Options
    gates: tuple[Gate, ...]
    max_bad_ratio: float | None
    output: str
    quiet: bool
    # show Spark's log and Java's stack traces
    debug: bool
    follow: bool
    engine: str
    # None: the master of spark-submit, or local[*]
    master: str | None
    conf: dict[str, str]
    # the equivalent spark-submit command; None without --print-submit
    submit_line: str | None


def parser() -> argparse.ArgumentParser:
    """The parser of all options; each `dest` is the name of a field of `Settings` or `Options`."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} INPUT... --out DIR [options]",
        description="Report how long stale routes lasted, from the heartbeat logs of NameServers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    says = "log files (.jsonl .jsonl.gz .open .parquet), directories of them, globs, or URLs that Spark can open"
    made.add_argument("inputs", metavar="INPUT", nargs="+", help=says)
    made.add_argument("--debug", action="store_true", help="show Spark's log, and tracebacks of errors in Java")
    says = "directory for the report; an older report in it is replaced"
    made.add_argument("--out", metavar="DIR", required=True, help=says)

    which = made.add_argument_group("which events")
    says = "from this time on: 2026-03-01, 2026-03-01T07:30 (UTC) or milliseconds"
    which.add_argument("--since", dest="since_ms", metavar="TIME", type=checked(moment_ms), help=says)
    which.add_argument("--until", dest="until_ms", metavar="TIME", type=checked(moment_ms), help="before this time")
    for name, what in (("cluster", "its brokers"), ("topic", "its clients"), ("nameserver", "its log")):
        says = f"only {what} (repeatable)"
        which.add_argument(f"--{name}", dest=f"{name}s", metavar="NAME", action="append", default=[], help=says)

    what_if = made.add_argument_group("settings")
    says = "how often clients poll for routes; part of the bound that staleness is compared with (default: 30)"
    poll = checked(_number(0.001, 86_400, "a number of seconds from 0.001 to 86,400", times=1000))
    what_if.add_argument("--poll", dest="poll_ms", metavar="SECONDS", type=poll, default=30_000, help=says)
    says = f"replay the log under these settings, in seconds (default: '{DEFAULT_GRID}')"
    what_if.add_argument("--what-if", metavar="GRID", type=checked(parse_grid), default=WhatIf(), help=says)

    shown = made.add_argument_group("output")
    shown.add_argument("-o", "--output", choices=("table", "json"), default="table", help="on stdout (default: table)")
    shown.add_argument("--quiet", action="store_true", help="print nothing but errors")
    says = "replace addresses, agents and clients by hashes, and leave out the text of bad lines"
    shown.add_argument("--redact", action="store_true", help=says)
    says = "INPUT is a directory of closed logs: read only files new since the last run with DIR, report on all"
    shown.add_argument("--follow", action="store_true", help=says)

    gates = made.add_argument_group("gates (exit code 1; the report is written all the same)")
    says = (
        "such as 'p99>45', 'client.p95>2m', 'over_bound>0', 'false>0'; durations are seconds unless they end"
        " with ms, s, m or h (repeatable)"
    )
    gate = checked(parse_gate)
    gates.add_argument("--fail-if", dest="gates", metavar="COND", type=gate, action="append", default=[], help=says)
    ratio, says = checked(_number(0, 1, "a ratio from 0 to 1")), "largest share of bad lines that passes, 0 to 1"
    gates.add_argument("--max-bad-ratio", metavar="RATIO", type=ratio, help=says)
    says = (
        "embedded: DuckDB, in this process, without Java; spark: Apache Spark, here or on a cluster; auto: spark if a"
        " master, --conf, SPARK_REMOTE, a URL or spark-submit asks for it, or DuckDB is not installed (default: auto)"
    )
    made.add_argument("--engine", choices=(AUTO, EMBEDDED, SPARK), default=AUTO, help=says)
    _add_spark(made)
    return made


def _add_spark(made: argparse.ArgumentParser) -> None:
    """The options for Spark, which spark-submit has as well."""
    spark = made.add_argument_group("Spark")
    says = "local[N], spark://HOST:PORT, yarn, k8s://… (default: local[*], spark-submit's)"
    spark.add_argument("--master", metavar="URL", help=says)
    says = "only for --print-submit; otherwise client"
    spark.add_argument("--deploy-mode", choices=("client", "cluster"), help=says)
    pair, says = checked(_pair), "any Spark setting (repeatable)"
    spark.add_argument("--conf", metavar="KEY=VALUE", type=pair, action="append", default=[], help=says)
    spark.add_argument("--print-submit", action="store_true", help="print the equivalent spark-submit command and exit")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def _number(least: float, most: float, what: str, *, times: int | None = None) -> Callable[[str], float]:
    """A function that parses a number within a range; with `times` it returns the rounded product."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ValueError(f"{text!r} is not {what}")
        return value if times is None else round(value * times)

    return read


def checked(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """The same function for argparse, which shows the messages of ArgumentTypeError only."""

    def parse(text: str) -> _T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def read_settings(argv: Sequence[str]) -> Settings:
    """Parse the command line. Raises UsageError; on --help and on its own errors argparse ends the process."""
    given = parser().parse_args(argv)
    given.conf, given.submit_line = dict(given.conf), None
    try:
        given.options = _filled(Options, given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if given.follow and given.redact:
        raise UsageError("--redact cannot be combined with --follow, which keeps unredacted lines in --out")
    if given.print_submit:
        # spark-submit gets the options for Spark, the report all others, in their order
        of_spark = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        _add_spark(of_spark)
        _, rest = of_spark.parse_known_args(list(argv))
        given.submit_line = submit_line(given.master or LOCAL_MASTER, given.deploy_mode, given.conf, rest)
    elif given.engine == EMBEDDED and (given.master or given.conf):
        raise UsageError("--master and --conf cannot be combined with --engine embedded; both are for Spark")
    elif given.deploy_mode == "cluster" and not is_submitted():
        raise UsageError("--deploy-mode cluster needs spark-submit; --print-submit prints the command")
    return _filled(Settings, given)


def _filled(kind: type[_T], given: argparse.Namespace) -> _T:
    """A dataclass filled with the arguments that have the names of its fields."""
    values = {field.name: getattr(given, field.name) for field in fields(kind)}  # type: ignore[arg-type]  # dataclasses
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
