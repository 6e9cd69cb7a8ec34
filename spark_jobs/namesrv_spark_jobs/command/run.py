"""How is one report made, from the files to the directory?"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import SESSION_CONF, Analysis, analyse
from namesrv_spark_jobs.command import exit_codes, follow
from namesrv_spark_jobs.command.contents import write_numbers, write_tables
from namesrv_spark_jobs.command.gates import Verdict, judge
from namesrv_spark_jobs.command.interrupting import listen
from namesrv_spark_jobs.command.measures import measured
from namesrv_spark_jobs.command.output import out_directory, write_json, written_aside
from namesrv_spark_jobs.command.progress import Progress
from namesrv_spark_jobs.command.run_file import Run
from namesrv_spark_jobs.command.session import spark_session
from namesrv_spark_jobs.command.settings import Settings
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.inputs import log_files
from namesrv_spark_jobs.report.text_table import as_json, as_table
from namesrv_spark_jobs.reports import RUN_FILE

# intermediate tables lie below the new report, because that is where all of a cluster can write
_STAGING: Final = ".staging"
# what Spark says of a path that it cannot read
_NO_INPUT: Final = frozenset({"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"})


@dataclass(frozen=True)
class Sources:
    """What is read: files, or tables of what was taken in from files."""

    files: list[str]
    # the files that the tables are from, and whether each is whole; None when files are read themselves
    taken_in: Mapping[str, bool] | None = None


@dataclass(frozen=True)
class Made:
    """What is told of a report that was made."""

    summary: dict[str, Any]
    verdicts: list[Verdict]


def make_report(settings: Settings, argv: Sequence[str]) -> int:
    """Make it; the exit code.

    Raises:
        UsageError: something is wrong that the user can put right; nothing was written then.
    """
    out = out_directory(settings.out)
    run = Run(argv)
    with Progress(quiet=settings.quiet) as progress:
        with written_aside(out) as aside:
            if settings.follow:
                follow.inherit(out, aside, follow.followed_directory(settings.inputs))
            # a mistyped path is told before Java starts
            files = [] if settings.follow else log_files(settings.inputs)
            progress("starting Spark")
            # Spark ends before the directory is renamed, or goes: its tasks write into it
            with spark_session(settings.master, {**SESSION_CONF, **settings.conf}) as spark:
                listen()
                sources = _taken_in(spark, settings, aside, progress) if settings.follow else Sources(files)
                analysis = _analysed(spark, sources, settings, aside, progress)
                verdicts = judge(analysis.summary, settings.gates, settings.max_bad_ratio)
                progress("writing the report")
                write_tables(aside, analysis)
                write_numbers(aside, analysis)
                told = run.told(spark, [*(sources.taken_in or sources.files)], verdicts)
                write_json(aside / RUN_FILE, told)
                shutil.rmtree(aside / _STAGING)
        made = Made(analysis.summary, verdicts)
        progress.line(_last_line(made.summary, progress.seconds))
    _tell(settings, made, out)
    return exit_codes.GATE if any(verdict.failed for verdict in made.verdicts) else exit_codes.OK


def _taken_in(spark: SparkSession, settings: Settings, aside: Path, progress: Progress) -> Sources:
    progress("taking in new files")
    taken_in = follow.take_in(spark, follow.followed_directory(settings.inputs), aside)
    return Sources(taken_in.tables, taken_in.files)


def _analysed(spark: SparkSession, sources: Sources, settings: Settings, aside: Path, progress: Progress) -> Analysis:
    """Run it; what Spark cannot open is the user's to put right.

    Raises:
        UsageError: a URL where there is nothing, or no line at all.
    """
    named = " ".join(settings.inputs)
    staging = f"file://{aside / _STAGING}"
    try:
        analysis = analyse(spark, sources.files, settings.options, staging, progress, taken_in=sources.taken_in)
    except FileNotFoundError as error:
        raise UsageError(f"{named}: no closed log in it") from error
    except AnalysisException as error:
        if _condition(error) in _NO_INPUT:
            raise UsageError(f"{named}: {str(error).splitlines()[0]}") from error
        raise
    if not measured(analysis.summary, "lines"):
        raise UsageError(f"{named}: empty; there is no line to report on")
    return analysis


def _condition(error: AnalysisException) -> str | None:
    """Its name was another one before Spark 4."""
    named = error.getCondition if hasattr(error, "getCondition") else error.getErrorClass
    return named()


def _last_line(summary: dict[str, Any], seconds: float) -> str:
    lines, bad = measured(summary, "lines") or 0, measured(summary, "bad") or 0
    return f"read {lines:,.0f} lines, {bad:,.0f} bad, {seconds:.0f} s"


def _tell(settings: Settings, made: Made, out: Path) -> None:
    for verdict in made.verdicts:
        if verdict.failed:
            sys.stderr.write(f"FAILED {verdict.says}\n")
    if not settings.quiet:
        shown = as_json(made.summary) if settings.output == "json" else as_table(made.summary, out)
        sys.stdout.write(shown)
        sys.stdout.flush()
