"""One run: from the files of a log to the directory of its report."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_spark_jobs import errors
from namesrv_spark_jobs.analysis import Analysis, analyse
from namesrv_spark_jobs.command import follow
from namesrv_spark_jobs.command.arguments import Settings
from namesrv_spark_jobs.command.engine import choose, opened
from namesrv_spark_jobs.command.gates import judge
from namesrv_spark_jobs.command.output import out_directory, run_json, write_report, written_aside
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import MissingFileError, UsageError
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.report.shown import as_json, as_table, counted

# intermediate tables lie below the new report, because that is where all of a cluster can write
_STAGING: Final = ".staging"
# a file that a server closes while it is read has another name then; the next one is closed an hour later
_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Sources:
    """What is read: files, or tables of what was taken in from files."""

    files: list[str]
    # the files that the tables are from, and whether each is whole; None when files are read themselves
    taken_in: Mapping[str, bool] | None = None


def make_report(settings: Settings, argv: Sequence[str]) -> int:
    """Make it; the exit code. A UsageError leaves nothing behind."""

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
    with written_aside(out) as aside:
        if settings.follow:
            followed = follow.followed_directory(settings.inputs)
            follow.inherit(out, aside, followed)
            found = follow.to_read(followed, aside)
        else:
            # a mistyped path is told before anything starts
            found = log_files(settings.inputs, say)
        choice = choose(settings, found, out)
        say(f"{choice.name} engine: {choice.why}")
        conf = {**progress, **settings.conf}
        # the engine ends before the directory is renamed, or goes: Spark's tasks write into it
        with opened(choice, settings, aside / _STAGING, conf) as engine:
            if settings.follow:
                sources = Sources(*follow.take_in(engine, follow.followed_directory(settings.inputs), aside))
            else:
                # once more: Java takes seconds to start, and servers go on closing their files
                sources = Sources(log_files(settings.inputs))
            sources, analysis = analysed(engine, sources, settings, steps)
            verdicts = judge(analysis.summary, settings.gates, settings.max_bad_ratio)
            files = list(sources.taken_in or sources.files)
            run = run_json(engine, argv, time.monotonic() - began, files, verdicts)
            write_report(engine, aside, analysis, run)
        shutil.rmtree(aside / _STAGING)
    read, failed = analysis.summary["input"], [verdict for verdict in verdicts if verdict.failed]
    say(f"read {counted(read['lines'], 'line')}, {read['bad']:,} bad, {time.monotonic() - began:.0f} s")
    sys.stderr.writelines(f"FAILED {verdict.says}\n" for verdict in failed)
    if not settings.quiet:
        is_json = settings.output == "json"
        sys.stdout.write(as_json(analysis.summary) if is_json else as_table(analysis.summary, out))
        sys.stdout.flush()
    return errors.GATE if failed else errors.OK


def analysed(
    engine: Engine, sources: Sources, settings: Settings, progress: Callable[[str], None]
) -> tuple[Sources, Analysis]:
    """Run the analysis; a file that its server closed meanwhile is read by its new name. Raises UsageError."""
    named = " ".join(settings.inputs)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            found = analyse(engine, sources.files, settings.options, progress, taken_in=sources.taken_in)
        except FileNotFoundError as error:
            raise UsageError(f"{named}: no closed log in it") from error
        except MissingFileError as error:
            now = Sources(log_files(settings.inputs)) if not settings.follow else sources
            if now.files == sources.files or attempt == _ATTEMPTS:
                raise UsageError(f"{named}: {error}") from error
            sources = now
        except UsageError as error:
            raise UsageError(f"{named}: {error}") from error
        else:
            return sources, found
    raise AssertionError  # the last attempt returns or raises
