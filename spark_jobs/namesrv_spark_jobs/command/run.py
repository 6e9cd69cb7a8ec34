"""One run: from the files of a log to the directory of its report."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from namesrv_spark_jobs import errors
from namesrv_spark_jobs.analysis import SESSION_CONF, Analysis, analyse
from namesrv_spark_jobs.command import follow
from namesrv_spark_jobs.command.arguments import Settings
from namesrv_spark_jobs.command.gates import judge
from namesrv_spark_jobs.command.output import out_directory, run_json, write_report, written_aside
from namesrv_spark_jobs.command.session import spark_session
from namesrv_spark_jobs.errors import PROGRAM, NothingToReadError, UsageError
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.report.shown import as_json, as_table

# intermediate tables lie below the new report, because that is where all of a cluster can write
_STAGING: Final = ".staging"
# what Spark says of a path that is not there, and of one that it cannot read as a table
_MISSING: Final = frozenset({"PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST"})
_NO_TABLE: Final = "UNABLE_TO_INFER_SCHEMA"
# a file that a server closes while it is read has another name then; the next one is closed an hour later
_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Sources:
    """What is read: files, or tables of what was taken in from files."""

    files: list[str]
    # the files that the tables are from, and whether each is whole; None when files are read themselves
    taken_in: Mapping[str, bool] | None = None


def make_report(settings: Settings, argv: Sequence[str], *, on_session: Callable[[], None]) -> int:
    """Make it; the exit code. `on_session` is called once Spark runs. A UsageError leaves nothing behind."""

    def say(line: str) -> None:
        if not settings.quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def steps(step: str) -> None:
        if is_watched:
            say(f"{step} ...")

    began = time.monotonic()
    out, is_watched = out_directory(settings.out), sys.stderr.isatty()
    # a person at a terminal sees Spark's progress bar, and each step
    progress = {"spark.ui.showConsoleProgress": str(is_watched and not settings.quiet).lower()}
    try:
        with written_aside(out) as aside:
            if settings.follow:
                follow.inherit(out, aside, follow.followed_directory(settings.inputs))
            else:
                # a mistyped path is told before Java starts
                log_files(settings.inputs, say)
            # Spark ends before the directory is renamed, or goes: its tasks write into it
            conf = {**SESSION_CONF, **progress, **settings.conf}
            with spark_session(settings.master, conf, debug=settings.debug) as spark:
                on_session()
                if settings.follow:
                    sources = Sources(*follow.take_in(spark, follow.followed_directory(settings.inputs), aside))
                else:
                    # once more: Java takes seconds to start, and servers go on closing their files
                    sources = Sources(log_files(settings.inputs))
                sources, analysis = analysed(spark, sources, settings, aside, steps)
                verdicts = judge(analysis.summary, settings.gates, settings.max_bad_ratio)
                files = list(sources.taken_in or sources.files)
                write_report(aside, analysis, run_json(spark, argv, time.monotonic() - began, files, verdicts))
                shutil.rmtree(aside / _STAGING)
    except (PySparkException, Py4JJavaError) as error:
        if settings.debug:
            raise
        sys.stderr.write(f"{PROGRAM}: Spark failed: {_first_line(error)}; --debug shows the whole trace\n")
        return errors.BUG
    read, failed = analysis.summary["input"], [verdict for verdict in verdicts if verdict.failed]
    say(f"read {read['lines']:,} lines, {read['bad']:,} bad, {time.monotonic() - began:.0f} s")
    sys.stderr.writelines(f"FAILED {verdict.says}\n" for verdict in failed)
    if not settings.quiet:
        is_json = settings.output == "json"
        sys.stdout.write(as_json(analysis.summary) if is_json else as_table(analysis.summary, out))
        sys.stdout.flush()
    return errors.GATE if failed else errors.OK


def analysed(
    spark: SparkSession, sources: Sources, settings: Settings, aside: Path, progress: Callable[[str], None]
) -> tuple[Sources, Analysis]:
    """Run the analysis; a file that its server closed meanwhile is read by its new name. Raises UsageError."""
    named = " ".join(settings.inputs)
    staging = f"file://{aside / _STAGING}"
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found = analyse(spark, sources.files, settings.options, staging, progress, taken_in=sources.taken_in)
        except FileNotFoundError as error:
            raise UsageError(f"{named}: no closed log in it") from error
        except PySparkException as error:
            condition = _condition(error)
            now = Sources(log_files(settings.inputs)) if condition in _MISSING and not settings.follow else sources
            if now.files == sources.files or attempt == _ATTEMPTS:
                if condition in {*_MISSING, _NO_TABLE}:
                    raise UsageError(f"{named}: {_first_line(error)}") from error
                raise
            sources = now
        except NothingToReadError as error:
            raise UsageError(f"{named}: {error}") from error
        else:
            return sources, found
    raise AssertionError  # the last attempt returns or raises


def _condition(error: PySparkException) -> str | None:
    """Its name was another one before Spark 4."""
    named = error.getCondition if hasattr(error, "getCondition") else error.getErrorClass
    return named()


def _first_line(error: Exception) -> str:
    """What Spark says, without Java's trace."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
