"""How does a report come into its directory: whole, or not at all?"""

import glob
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.command.renaming import exchange
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.reports import PROGRAM, is_report, is_url

SUCCESS: Final = "_SUCCESS"


def out_directory(text: str) -> Path:
    """Where the report goes; its parents exist afterwards.

    Raises:
        UsageError: it is not a place to write a report to.
    """
    if is_url(text):
        raise UsageError(
            f"--out {text}: is no directory; a report is written to a file system that this machine mounts"
        )
    out = Path(text.removeprefix("file://")).expanduser().absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
    except OSError as error:
        raise UsageError(f"--out {text}: {error.filename}: {error.strerror}") from error
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(f"--out {text}: {out.parent} may not be written to")
    return out


def _refuse_foreign(out: Path) -> None:
    """Replacing means deleting: only what is empty or a report of ours.

    Raises:
        UsageError: it is something else.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"--out {out}: exists and is no directory")
    if out.exists() and any(out.iterdir()) and not is_report(out):
        raise UsageError(f"--out {out}: is not empty and no report of {PROGRAM}; it is left alone")
    if os.path.ismount(out):
        raise UsageError(f"--out {out}: is a mount point and cannot be renamed; name a directory below it")


@contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """A directory beside `out` that takes its place at the end; whatever is raised, `out` stays as it was.

    Raises:
        UsageError: it cannot be made.
    """
    _remove_leftovers(out)
    aside = out.with_name(f".{out.name}.tmp-{socket.gethostname()}-{os.getpid()}")
    try:
        aside.mkdir()
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror} ({aside})") from error
    try:
        yield aside
        (aside / SUCCESS).touch()
        _sync(aside)
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
        return True
    return True


def _sync(aside: Path) -> None:
    """What is about to be renamed into place is on disk."""
    for path in aside.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _replace(out: Path, aside: Path) -> None:
    # looked at again: much may have happened in the minutes since the start
    _refuse_foreign(out)
    if not out.exists():
        aside.rename(out)
    elif not exchange(aside, out):
        old = out.with_name(f"{aside.name}.old")
        out.rename(old)
        aside.rename(out)
        shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write it as people read it; the same value gives the same bytes."""
    with suppress(FileNotFoundError):
        path.unlink()
    path.write_text(
        json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n", encoding="utf-8"
    )
