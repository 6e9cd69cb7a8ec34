"""Which files does an INPUT mean?"""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.reports import is_report, is_url

# what the daemon and the client write: closed, plain, and open (or left by a crash)
LOG_SUFFIXES: Final = (".jsonl.gz", ".jsonl", ".jsonl.open", ".open")
PARQUET_SUFFIX: Final = ".parquet"
SUFFIXES: Final = (*LOG_SUFFIXES, PARQUET_SUFFIX)
_GLOB: Final = re.compile(r"[*?\[]")


def log_files(inputs: Iterable[str]) -> list[str]:
    """The files of all inputs, sorted, each once; URLs come as they are, after the files.

    Raises:
        UsageError: an input names nothing, or nothing that is a log.
    """
    urls: set[str] = set()
    files: set[str] = set()
    for text in inputs:
        if is_url(text):
            urls.add(text)
        else:
            files.update(_local_files(text))
    return [*sorted(files), *sorted(urls)]


def _local_files(text: str) -> list[str]:
    if text == "-":
        raise UsageError("-: a log is read from files or directories, not from standard input")
    if not text:
        raise UsageError("'': an empty INPUT; name a file, a directory or a glob")
    plain = re.sub(r"^file://", "", text, flags=re.IGNORECASE)
    matches = _matches(plain)
    if not matches:
        raise UsageError(f"{text}: no such file or directory")
    found = [file for match in matches for file in _files_of(match)]
    if not found:
        raise UsageError(f"{text}: no {' '.join(SUFFIXES[:3])} or {PARQUET_SUFFIX} file in it")
    return found


def _matches(plain: str) -> list[Path]:
    """A path that exists is that path, whatever characters it has; otherwise it may be a glob."""
    path = Path(plain).expanduser()
    if path.exists():
        return [path]
    if not _GLOB.search(plain):
        return []
    # pathlib has no patterns with a root
    return [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207


def _files_of(path: Path) -> list[str]:
    if path.is_dir() and path.suffix != PARQUET_SUFFIX:
        return [str(file) for file in _walk(path)]
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path}: may not be read")
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: is no log; one ends with {', '.join(SUFFIXES)}")
    return [str(path.resolve())]


def _walk(folder: Path) -> list[Path]:
    """The logs below a directory; like Spark, nothing that begins with `_` or `.`.

    Raises:
        UsageError: a directory below may not be read: its logs would be missing without a word.
    """
    found: list[Path] = []
    for root, folders, names in os.walk(folder.resolve(), onerror=_refuse):
        hidden = [name for name in folders if name.startswith(("_", "."))]
        whole = [name for name in folders if name.endswith(PARQUET_SUFFIX)]
        # what this program wrote is Parquet, too
        reports = [name for name in folders if is_report(Path(root, name))]
        folders[:] = [name for name in folders if name not in {*hidden, *whole, *reports}]
        found += [Path(root, name) for name in _visible([*names, *whole])]
    return found


def _visible(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith(SUFFIXES) and not name.startswith(("_", "."))]


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename}: {error.strerror}") from error
