"""What does one run do? The command line, read and checked."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from namesrv_spark_jobs.command.arguments import add_spark, parser
from namesrv_spark_jobs.command.gates import Gate
from namesrv_spark_jobs.command.session import LOCAL_MASTER, is_submitted
from namesrv_spark_jobs.command.submit_line import submit_line
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.options import Options


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
    options = _options(given)
    if options.since_ms is not None and options.until_ms is not None and options.since_ms >= options.until_ms:
        raise UsageError("--until is not after --since: no line would count")
    if given.deploy_mode == "cluster" and not given.print_submit and not is_submitted():
        raise UsageError("--deploy-mode cluster: only spark-submit can do that; --print-submit prints its line")
    return Settings(
        inputs=tuple(given.inputs),
        out=given.out,
        options=options,
        gates=tuple(given.fail_if),
        max_bad_ratio=given.max_bad_ratio,
        output=given.output,
        quiet=given.quiet,
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
