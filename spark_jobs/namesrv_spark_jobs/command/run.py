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
from namesrv_spark_jobs.command.standard_output import written
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import MissingFileError, UsageError
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.report.shown import as_json, as_table, counted

# the folder for intermediate tables; it is below the new report, where all machines of a cluster can write
_STAGING: Final = ".staging"
# A file that a server closes during the run gets another name, and is read again under that. The server closes its next
# file an hour later.
_ATTEMPTS: Final = 3


@dataclass(frozen=True)
class Sources:
    """The input of an analysis: log files, or with --follow tables of their lines."""

    files: list[str]
    # the log files from which tables were made, and whether each was whole; None for log files
    taken_in: Mapping[str, bool] | None = None


def make_report(settings: Settings, argv: Sequence[str]) -> int:
    """Make a report, and return the exit code. Raises UsageError, and then leaves no files behind."""

    def say(line: str) -> None:
        if not settings.quiet:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def steps(step: str) -> None:
        if is_watched:
            say(f"{step} ...")

    began = time.monotonic()
    out, is_watched = out_directory(settings.out), sys.stderr.isatty()
    followed = follow.followed_directory(settings.inputs) if settings.follow else None
    if followed is None:
        follow.refuse_followed(out)
    # on a terminal, Spark's progress bar and each stage are shown
    progress = {"spark.ui.showConsoleProgress": str(is_watched and not settings.quiet).lower()}
    with written_aside(out) as aside:
        if followed is None:
            # raises for a mistyped path before an engine starts
            inputs = log_files(settings.inputs, say)
        else:
            follow.inherit(out, aside, followed)
            inputs = follow.to_read(followed, aside)
        choice = choose(settings, inputs, out)
        say(f"{choice.name} engine: {choice.why}")
        conf = {**progress, **settings.conf}
        # the engine is closed before the directory is renamed or removed, since Spark's tasks write into it
        with opened(choice, settings, aside / _STAGING, conf) as engine:
            if followed is None:
                # listed again: while Java was starting, servers may have closed files
                sources = Sources(log_files(settings.inputs))
            else:
                sources = Sources(*follow.take_in(engine, followed, aside))
            sources, analysis = analysed(engine, sources, settings, steps)
            verdicts = judge(analysis.summary, settings.gates, settings.max_bad_ratio, options=settings.options)
            files = list(sources.taken_in or sources.files)
            run = run_json(engine, argv, time.monotonic() - began, files, verdicts)
            write_report(engine, aside, analysis, run)
        shutil.rmtree(aside / _STAGING)
    read, failed = analysis.summary["input"], [verdict for verdict in verdicts if verdict.failed]
    say(f"read {counted(read['lines'], 'line')}, {read['bad']:,} bad, {time.monotonic() - began:.0f} s")
    sys.stderr.writelines(f"FAILED {verdict.says}\n" for verdict in failed)
    code = errors.GATE if failed else errors.OK
    if settings.quiet:
        return code
    is_json = settings.output == "json"
    return max(code, written(as_json(analysis.summary) if is_json else as_table(analysis.summary, out)))


def analysed(
    engine: Engine, sources: Sources, settings: Settings, progress: Callable[[str], None]
) -> tuple[Sources, Analysis]:
    """Run the analysis, again if a server closed and so renamed a file during it. Raises UsageError."""
    named = " ".join(settings.inputs)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            analysis = analyse(engine, sources.files, settings.options, progress, taken_in=sources.taken_in)
        except FileNotFoundError as error:
            raise UsageError(f"no closed log files in {named}") from error
        except MissingFileError as error:
            now = Sources(log_files(settings.inputs)) if not settings.follow else sources
            if now.files == sources.files or attempt == _ATTEMPTS:
                raise UsageError(f"{named}: {error}") from error
            sources = now
        except UsageError as error:
            raise UsageError(f"{named}: {error}") from error
        else:
            return sources, analysis
    raise AssertionError  # the last attempt returns or raises
