"""The directory of a report: written beside its final place, and moved there complete or not at all."""

import csv
import errno
import glob
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.analysis import METRIC_COLUMNS, Analysis
from namesrv_spark_jobs.command.gates import Verdict
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.log_files import expanded, is_url, require_utf8
from namesrv_spark_jobs.log_folders import RUN_FILE, is_report
from namesrv_spark_jobs.report.page import page
from namesrv_spark_jobs.report.shown import as_json, printable

# errors of a disk without space, and of a user without quota
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def out_directory(text: str) -> Path:
    """The directory for the report; its parents are created. Raises UsageError when it cannot be written."""
    if is_url(text):
        raise UsageError(f"--out {text}: not a local directory; choose one on a file system that this machine mounts")
    out = expanded(text.removeprefix("file://")).absolute()
    require_utf8(str(out))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
    except OSError as error:
        raise UsageError(f"--out {text}: {error.filename}: {error.strerror}") from error
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--out {text}: {out.parent} is not writable")
    return out


def _refuse_foreign(out: Path) -> None:
    """Raise UsageError unless the directory is empty or a report of this program, since it will be deleted."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"--out {out}: exists and is not a directory")
    if out.exists() and any(out.iterdir()) and not is_report(out):
        raise UsageError(f"--out {out}: neither empty nor a report of {PROGRAM}; left alone")
    if os.path.ismount(out):
        raise UsageError(f"--out {out}: is a mount point and cannot be replaced; name a directory below it")


@contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """Context with a directory beside `out` that replaces `out` at the end. After an exception `out` is unchanged.

    Raises UsageError when the directory cannot be made, or its disk is full.
    """
    _remove_leftovers(out)
    aside = out.with_name(f".{out.name}.tmp-{socket.gethostname()}-{os.getpid()}")
    try:
        aside.mkdir()
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror} ({aside})") from error
    try:
        yield aside
        (aside / "_SUCCESS").touch()
        _replace(out, aside)
    except OSError as error:
        if error.errno in _FULL:
            raise UsageError(f"--out {out}: {error.strerror}") from error
        raise
    finally:
        # removes the unfinished report after an exception; after the rename there is nothing left
        shutil.rmtree(aside, ignore_errors=True)


def _remove_leftovers(out: Path) -> None:
    """Remove the directories of runs on this machine that were killed."""
    prefix = f".{out.name}.tmp-{socket.gethostname()}-"
    for leftover in out.parent.glob(f"{glob.escape(prefix)}*"):
        pid = leftover.name.removeprefix(prefix)
        if pid.isdecimal() and not _is_alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # the process of another user
        pass
    return True


def _replace(out: Path, aside: Path) -> None:
    # all files are on disk before the rename
    for path in aside.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    # checked again, since the run may have taken minutes
    _refuse_foreign(out)
    old = out.with_name(f"{aside.name}.old")
    if out.exists():
        out.rename(old)
    aside.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a value as indented JSON; equal values give equal bytes."""
    with suppress(FileNotFoundError):
        path.unlink()
    path.write_text(as_json(value), encoding="utf-8")


def write_report(engine: Engine, aside: Path, analysis: Analysis, run: Mapping[str, object]) -> None:
    """Write all files of a report; the engine writes the rows of intervals and bad lines."""
    engine.write_parquet(analysis.intervals, aside / "intervals", by="date")
    engine.write_json(analysis.bad, aside / "bad_records")
    write_json(aside / "summary.json", analysis.summary)
    with (aside / "metrics.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, METRIC_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _safe(value) for key, value in row.items()} for row in analysis.metrics)
    (aside / "report.html").write_text(page(analysis.summary, analysis.charts), encoding="utf-8")
    write_json(aside / RUN_FILE, run)


def _safe(value: object) -> object:
    """The value; a text with escapes in place of control characters, since csv leaves a carriage return unquoted.

    A text that begins like a formula is quoted: a spreadsheet would run such a name.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def run_json(
    engine: Engine, argv: Sequence[str], seconds: float, files: Sequence[str], verdicts: Sequence[Verdict]
) -> dict[str, object]:
    """The content of run.json for a report; the run began `seconds` ago."""
    return {
        **about_run(argv, seconds, verdicts),
        "files": [{"file": file, "bytes": _size(file)} for file in files],
        "engine": engine.describe(),
    }


def about_run(argv: Sequence[str], seconds: float, verdicts: Sequence[Verdict]) -> dict[str, object]:
    """The fields of run.json that reports and comparisons have in common; the run began `seconds` ago."""
    return {
        "program": PROGRAM,
        "version": _installed_version(),
        "began": (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "arguments": list(argv),
        "directory": str(Path.cwd()),
        "gates": [asdict(verdict) for verdict in verdicts],
        "python": platform.python_version(),
        "platform": sys.platform,
    }


def _installed_version() -> str | None:
    # the wheel of the report, or a clone; unknown where the package is a zip or a folder on the path
    for distribution in ("namesrv-report", "namesrv"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return None


def _size(file: str) -> int | None:
    """The size of a file; None if only Spark can open it."""
    try:
        return None if is_url(file) else Path(file).stat().st_size
    except OSError:
        return None
