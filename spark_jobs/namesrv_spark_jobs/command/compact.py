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

from namesrv_spark_jobs.errors import OK, PROGRAM, EngineError, MissingPackageError, UsageError
from namesrv_spark_jobs.log_files import refused, truncated
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
    place = Path(chosen.place)
    if not place.exists():
        raise UsageError(f"{place}: no such file or directory")
    if importlib.util.find_spec("duckdb") is None:
        raise MissingPackageError("duckdb")
    files = list(_closed(place))
    # a report warns of a damaged file, but could not of a Parquet file made from it
    damaged = set(truncated([str(file) for file in files]))
    for name in sorted(damaged):
        sys.stderr.write(f"{PROGRAM}: skipped {name}: truncated or damaged\n")
    files = [file for file in files if str(file) not in damaged]
    before = after = 0
    for number, file in enumerate(files, 1):
        target = compacted_of(file)
        size = file.stat().st_size
        if not target.exists():
            _compact(file, target)
        before, after = before + size, after + target.stat().st_size
        if chosen.drop_lines:
            file.unlink()
        if not chosen.quiet:
            sys.stderr.write(f"{PROGRAM}: {number} of {len(files)}: {target}\n")
    if not chosen.quiet:
        sizes = f"{before / 1e6:,.1f} MB became {after / 1e6:,.1f} MB"
        sys.stderr.write(f"{PROGRAM}: {counted(len(files), 'file')}: {sizes}\n")
    return OK


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
    return made


def _closed(place: Path) -> Iterator[Path]:
    """The closed files of heartbeat logs, oldest first."""
    if place.is_file():
        if not place.name.endswith(CLOSED_SUFFIX):
            raise UsageError(f"{place}: not a closed log ({CLOSED_SUFFIX})")
        yield place
        return
    found = (Path(root, name) for root, names in folders_below(place, refused) for name in names)
    for file in sorted(found):
        # Parquet would not keep the fields of an audit trail.
        if file.name.endswith(CLOSED_SUFFIX) and not any(map(is_audit_trail, file.resolve().parents)):
            yield file


def _compact(file: Path, target: Path) -> None:
    """Write the Parquet file beside a file, atomically and durably. It gets the file's age, for the retention."""
    import duckdb  # noqa: PLC0415  # not for --help

    from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine  # noqa: PLC0415  # imports duckdb

    # readers skip a name that begins with a dot
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    status = file.stat()
    try:
        with tempfile.TemporaryDirectory(prefix="namesrv-compact-") as staging, EmbeddedEngine(Path(staging)) as engine:
            engine.write_sorted(str(file), scratch)
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        shutil.copymode(file, scratch)
        os.utime(scratch, ns=(time.time_ns(), status.st_mtime_ns))
        scratch.replace(target)
    except (duckdb.Error, OSError) as error:
        raise EngineError(f"{file}: {str(error).partition(chr(10))[0]}") from error
    finally:
        scratch.unlink(missing_ok=True)
