"""`namesrv-staleness compare A B`: compare two reports, or one log at two times."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from namesrv_spark_jobs import errors
from namesrv_spark_jobs.command.arguments import Settings, checked, read_settings
from namesrv_spark_jobs.command.follow import refuse_followed
from namesrv_spark_jobs.command.gates import Verdict, judge, parse_gate
from namesrv_spark_jobs.command.output import about_run, out_directory, write_json, written_aside
from namesrv_spark_jobs.command.standard_output import written
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.history.moments import moment_ms
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.log_folders import RUN_FILE, is_report
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS
from namesrv_spark_jobs.report.comparison import comparison
from namesrv_spark_jobs.report.page import comparison_page
from namesrv_spark_jobs.report.shown import as_comparison, as_json
from namesrv_spark_jobs.report.summary import SCHEMA

COMMAND: Final = "compare"
_SUMMARY: Final = "summary.json"
_USAGE: Final = f"""{PROGRAM} {COMMAND} A B --out DIR [options]
       {PROGRAM} {COMMAND} LOGS --before FROM/TO --after FROM/TO --out DIR [options]"""
_EPILOG: Final = f"""\
A and B are directories of logs, reports of this program, or their summary.json; from logs, a report is made in DIR/a
and DIR/b. The options of a report apply to the logs: `{PROGRAM} --help` lists them.

examples:
  {PROGRAM} {COMMAND} last-week/ this-week/ --out changes
  {PROGRAM} {COMMAND} heartbeats/ --before 2026-03-01/2026-03-08 --after 2026-03-08/2026-03-15 --out changes
  {PROGRAM} {COMMAND} before.json after.json --out changes --fail-if 'client.p99>60s' --fail-if 'client.p99>+10%'
"""

# since, until
Window = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison, A or B: logs of which a report is made, or a finished report."""

    # the title of the side: a path, or a span of time
    name: str
    # the settings of the report of logs
    settings: Settings | None = None
    # the summary of a finished report
    summary: Mapping[str, Any] | None = None


def compare(argv: Sequence[str], make_report: Callable[[Settings], int]) -> int:
    """Compare A and B, and return the exit code. Raises UsageError."""
    own, rest = _parser().parse_known_args(argv)
    settings, began = read_settings(rest), time.monotonic()
    if settings.follow or settings.submit_line is not None:
        raise UsageError(f"--follow and --print-submit cannot be combined with {COMMAND}")
    sides = _sides(settings, own.before, own.after)
    out = out_directory(settings.out)
    refuse_followed(out)
    with written_aside(out) as aside:
        codes = [_make(name, side, aside, make_report) for name, side in sides.items()]
        before, after = (side.summary or _read(aside / name / _SUMMARY) for name, side in sides.items())
        compared = comparison(before, after)
        of_logs = sides["b"].settings
        options = Options() if of_logs is None else of_logs.options
        verdicts = judge(after, own.gates, before=before, options=options)
        if own.fail_if_worse:
            is_worse = compared["verdict"] in {"worse", "mixed"}
            verdicts.append(Verdict("worse", failed=is_worse, says=f"worse: {compared['says']}"))
        made = {**compared, "gates": [asdict(verdict) for verdict in verdicts]}
        names = {name: side.name for name, side in sides.items()}
        reports = {name: f"{name}/report.html" for name, side in sides.items() if side.settings is not None}
        write_json(aside / "comparison.json", made)
        (aside / "comparison.html").write_text(comparison_page(made, names, reports), encoding="utf-8")
        write_json(aside / RUN_FILE, about_run(argv, time.monotonic() - began, verdicts))
    failed = [verdict for verdict in verdicts if verdict.failed]
    sys.stderr.writelines(f"FAILED {verdict.says}\n" for verdict in failed)
    code = errors.GATE if failed else max(codes)
    if settings.quiet:
        return code
    return max(code, written(as_json(made) if settings.output == "json" else as_comparison(made, names, out)))


def _make(name: str, side: Side, aside: Path, make_report: Callable[[Settings], int]) -> int:
    """Make the report of a side that consists of logs; return the exit code, 0 for a finished report."""
    if side.settings is None:
        return errors.OK
    if not side.settings.quiet:
        sys.stderr.write(f"{name.upper()}: {side.name} ...\n")
    return make_report(replace(side.settings, out=str(aside / name), quiet=True))


def _parser() -> argparse.ArgumentParser:
    """The parser of the options that only a comparison has."""
    made = argparse.ArgumentParser(
        prog=f"{PROGRAM} {COMMAND}",
        usage=_USAGE,
        description="Compare two reports, or one log at two times: what changed, for better or for worse.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, side in (("before", "A"), ("after", "B")):
        says = f"{side} is the log of this time: two times in the notation of --since, with a / between them"
        made.add_argument(f"--{name}", metavar="FROM/TO", type=checked(_window), help=says)
    says = (
        "end with code 1 if this is true of B, such as 'client.p99>60s', or of the increase from A to B, such as"
        " 'client.p99>+5s', 'client.p99>+10%%' or 'false>+0' (repeatable)"
    )
    gate = checked(partial(parse_gate, changes=True))
    made.add_argument("--fail-if", dest="gates", metavar="COND", type=gate, action="append", default=[], help=says)
    says = "end with code 1 if any measure got worse, even if others got better"
    made.add_argument("--fail-if-worse", action="store_true", help=says)
    return made


def _window(text: str) -> tuple[str, Window]:
    since, divided, until = text.partition("/")
    if not divided:
        raise ValueError(f"{text!r} is not FROM/TO (for example 2026-03-01/2026-03-08)")
    window = moment_ms(since), moment_ms(until)
    if window[0] >= window[1]:
        raise ValueError(f"{text}: {until} is not after {since}")
    return text, window


def _sides(settings: Settings, before: tuple[str, Window] | None, after: tuple[str, Window] | None) -> dict[str, Side]:
    if before is None and after is None:
        if len(settings.inputs) != 2:  # noqa: PLR2004 - A and B
            given = len(settings.inputs)
            raise UsageError(f"{COMMAND} takes A and B, or one log with --before and --after; {given} given")
        return {name: _side(settings, given) for name, given in zip("ab", settings.inputs, strict=True)}
    if before is None or after is None:
        raise UsageError(f"--{'before' if before else 'after'} needs --{'after' if before else 'before'}")
    if settings.options.since_ms is not None or settings.options.until_ms is not None:
        raise UsageError("--before and --after cannot be combined with --since and --until")
    sides = {}
    for name, (text, (since_ms, until_ms)) in (("a", before), ("b", after)):
        options = replace(settings.options, since_ms=since_ms, until_ms=until_ms)
        sides[name] = Side(name=text, settings=replace(settings, options=options))
    return sides


def _side(settings: Settings, given: str) -> Side:
    """The side for an argument: a summary, the directory of a report, or logs."""
    path = Path(given)
    if path.is_dir() and is_report(path):
        path /= _SUMMARY
    if path.suffix == ".json" and path.is_file():
        return Side(name=given, summary=_read(path))
    # raises for a mistyped B before the report of A is made
    log_files([given])
    return Side(name=given, settings=replace(settings, inputs=(given,)))


def _read(path: Path) -> Mapping[str, Any]:
    """Read a summary. Raises UsageError when the file is not a summary of this schema, with all percentiles."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict) or not {"input", "registry", "client", "findings"} <= set(document):
        raise UsageError(f"{path}: not a summary of {PROGRAM}")
    if document["schema"] != SCHEMA:
        raise UsageError(f"{path}: summary of schema {document['schema']}, this version compares schema {SCHEMA}")
    if lacking := [name for field, name in PERCENTILE_FIELDS.items() if field not in document["registry"]["all"]]:
        raise UsageError(f"{path}: summary without {', '.join(lacking)}; make its report again")
    return document
