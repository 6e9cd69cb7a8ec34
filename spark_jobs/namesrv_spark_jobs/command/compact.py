"""`namesrv-staleness compact`: convert closed files of a log to Parquet, which is smaller and quicker to read."""

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.errors import OK, PROGRAM, EngineError, MissingFileError, MissingPackageError, UsageError
from namesrv_spark_jobs.log_files import is_url, refused, require_utf8, truncated
from namesrv_spark_jobs.log_folders import CLOSED_SUFFIX, compacted_of, folders_below, is_audit_trail
from namesrv_spark_jobs.report.shown import counted

COMMAND: Final = "compact"

_EPILOG: Final = """\
Each closed file (.jsonl.gz) gets a .parquet beside it, sorted by broker and time, which reports read instead.
It has all fields that a report needs, without those that are for people only (docs/heartbeat-log.md).
The daemon's retention removes both. Files that are being written, and a daemon's audit trail, are skipped. A second
run continues where the first ended, and an interrupted run leaves no incomplete file. A damaged file is not converted.

examples:
  namesrv-staleness compact heartbeats/
  namesrv-staleness compact heartbeats/ --drop-lines
"""


def main(argv: Sequence[str]) -> int:
    """Compact the files that the arguments name, and return the exit code. Raises UsageError and EngineError."""
    chosen = _parser().parse_args(argv)
    if is_url(chosen.place):
        raise UsageError(f"{chosen.place}: only local files are compacted")
    place = Path(chosen.place)
    if not place.exists():
        raise UsageError(f"{place}: no such file or directory")
    if importlib.util.find_spec("duckdb") is None:
        raise MissingPackageError("duckdb")
    files = list(_closed(place))
    # a report warns of a damaged file, but could not of a Parquet file made from it
    damaged = set(truncated([str(file) for file in files]))
    for name in sorted(damaged):
        if Path(name).exists():
            sys.stderr.write(f"{PROGRAM}: skipped {name}: truncated or damaged\n")
    files = [file for file in files if str(file) not in damaged]
    sizes: list[tuple[int, int]] = []
    for number, file in enumerate(files, 1):
        size = _taken(file, drop_lines=chosen.drop_lines)
        if size is not None:
            sizes.append(size)
            if not chosen.quiet:
                sys.stderr.write(f"{PROGRAM}: {number} of {len(files)}: {compacted_of(file)}\n")
    if not chosen.quiet:
        before, after = (sum(size[at] for size in sizes) for at in (0, 1))
        became = f"{before / 1e6:,.1f} MB became {after / 1e6:,.1f} MB"
        sys.stderr.write(f"{PROGRAM}: {counted(len(sizes), 'file')}: {became}\n")
    return OK


def _taken(file: Path, *, drop_lines: bool) -> tuple[int, int] | None:
    """Compact one file unless it is; return its size before and after, or None if it is no log or was removed."""
    target = compacted_of(file)
    try:
        before = file.stat().st_size
        if not target.exists() and not _compact(file, target):
            sys.stderr.write(f"{PROGRAM}: skipped {file}: no line of a heartbeat log\n")
            return None
        after = target.stat().st_size
        if drop_lines:
            file.unlink()
    except (EngineError, MissingFileError, OSError) as error:
        if not file.exists():
            # another run, or the daemon's retention, has removed it meanwhile
            return None
        if isinstance(error, OSError):
            raise UsageError(f"{file}: {str(error.strerror).lower()}") from error
        raise EngineError(f"{file}: {error}") from error
    return before, after


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"{PROGRAM} {COMMAND}",
        description="Turn closed files of heartbeat logs into Parquet.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("place", metavar="DIR", help="directory of logs, as the daemon writes it, or one closed file")
    made.add_argument("--drop-lines", action="store_true", help="remove each file of lines once its Parquet is on disk")
    made.add_argument("--quiet", action="store_true", help="print nothing but errors")
    made.add_argument("--debug", action="store_true", help="show tracebacks of errors in DuckDB")
    return made


def _closed(place: Path) -> Iterator[Path]:
    """The closed files of heartbeat logs, oldest first."""
    if place.is_file():
        if not place.name.endswith(CLOSED_SUFFIX):
            raise UsageError(f"{place}: not a closed log ({CLOSED_SUFFIX})")
        _require_access(place)
        yield place
        return
    found = (Path(root, name) for root, names in folders_below(place, refused) for name in names)
    for file in sorted(found):
        # To open a named pipe would take for ever. Parquet would not keep the fields of an audit trail.
        if not file.is_file():
            continue
        if file.name.endswith(CLOSED_SUFFIX) and not any(map(is_audit_trail, file.resolve().parents)):
            _require_access(file)
            yield file


def _require_access(file: Path) -> None:
    """Raise UsageError for a file that may not be read, which would look damaged, or that DuckDB cannot open."""
    require_utf8(str(file))
    try:
        file.open("rb").close()
    except PermissionError as error:
        raise UsageError(f"{file}: permission denied") from error
    except OSError:
        # removed meanwhile
        return


def _compact(file: Path, target: Path) -> bool:
    """Write the Parquet file beside a file, atomically and durably. It gets the file's age, for the retention.

    False for a file without a line of a heartbeat log, such as one of an audit trail, whose fields Parquet would lose.
    """
    from namesrv_spark_jobs.command.engine import embedded  # noqa: PLC0415  # not for --help

    # readers skip a name that begins with a dot
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    status = file.stat()
    # without permission, DuckDB's error would be several lines long
    scratch.touch()
    try:
        with tempfile.TemporaryDirectory(prefix="namesrv-compact-") as staging, embedded(Path(staging)) as engine:
            if not engine.write_sorted(str(file), scratch):
                return False
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        shutil.copymode(file, scratch)
        os.utime(scratch, ns=(time.time_ns(), status.st_mtime_ns))
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return True
