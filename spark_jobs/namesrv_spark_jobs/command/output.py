"""The directory of a report: written aside, and put into its place whole or not at all."""

import csv
import glob
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from namesrv_spark_jobs.analysis import METRIC_COLUMNS, Analysis
from namesrv_spark_jobs.command.gates import Verdict
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.log_files import RUN_FILE, is_report, is_url
from namesrv_spark_jobs.report.page import page
from namesrv_spark_jobs.report.shown import as_json


def out_directory(text: str) -> Path:
    """Where the report goes; its parents exist afterwards. A UsageError when nothing may be written there."""
    if is_url(text):
        says = "a report is written to a file system that this machine mounts"
        raise UsageError(f"--out {text}: not a local directory; {says}")
    out = Path(text.removeprefix("file://")).expanduser().absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
    except OSError as error:
        raise UsageError(f"--out {text}: {error.filename}: {error.strerror}") from error
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--out {text}: {out.parent} is not writable")
    return out


def _refuse_foreign(out: Path) -> None:
    """Raise UsageError unless it is empty or a report of ours: replacing means deleting."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"--out {out}: exists and is not a directory")
    if out.exists() and any(out.iterdir()) and not is_report(out):
        raise UsageError(f"--out {out}: neither empty nor a report of {PROGRAM}; left alone")
    if os.path.ismount(out):
        raise UsageError(f"--out {out}: is a mount point and cannot be replaced; name a directory below it")


@contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """A directory beside `out` that takes its place at the end; whatever is raised, `out` stays. Raises UsageError."""
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
    finally:
        # the old report after a swap, an unfinished one otherwise
        shutil.rmtree(aside, ignore_errors=True)


def _remove_leftovers(out: Path) -> None:
    """What a run on this machine left when it was killed."""
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
        # somebody else's
        pass
    return True


def _replace(out: Path, aside: Path) -> None:
    # what is renamed into place is on disk
    for path in aside.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    # looked at again: much may have happened in the minutes since the start
    _refuse_foreign(out)
    old = out.with_name(f"{aside.name}.old")
    if out.exists():
        out.rename(old)
    aside.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write it as people read it; the same value gives the same bytes."""
    with suppress(FileNotFoundError):
        path.unlink()
    path.write_text(as_json(value), encoding="utf-8")


def write_report(engine: Engine, aside: Path, analysis: Analysis, run: Mapping[str, object]) -> None:
    """All files: one row per interval and one per bad line by the engine, then what people and gates read."""
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
    """A spreadsheet would run a name that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def run_json(
    engine: Engine, argv: Sequence[str], seconds: float, files: Sequence[str], verdicts: Sequence[Verdict]
) -> dict[str, object]:
    """The content of run.json, of a run that began so many seconds ago."""
    return {
        **about_run(argv, seconds, verdicts),
        "files": [{"file": file, "bytes": _size(file)} for file in files],
        "engine": engine.describe(),
    }


def about_run(argv: Sequence[str], seconds: float, verdicts: Sequence[Verdict]) -> dict[str, object]:
    """What run.json says of every run; it began so many seconds ago."""
    return {
        "program": PROGRAM,
        "version": _installed_version(),
        "began": (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "arguments": list(argv),
        "directory": str(Path.cwd()),
        "gates": [{"gate": one.gate, "failed": one.failed, "says": one.says} for one in verdicts],
        "python": platform.python_version(),
        "platform": sys.platform,
    }


def _installed_version() -> str | None:
    # the wheel of the report, or a clone; neither where the package is a zip or a folder on the path
    for distribution in ("namesrv-report", "namesrv"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return None


def _size(file: str) -> int | None:
    """None of one that only Spark can open."""
    try:
        return None if is_url(file) else Path(file).stat().st_size
    except OSError:
        return None
