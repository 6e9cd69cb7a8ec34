"""Log files: which ones an INPUT names, their short names, and whether their gzip is whole."""

import glob
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

from namesrv_spark_jobs.errors import PROGRAM, UsageError

# what the daemon and the client write: closed, plain, and open (or left by a crash)
LOG_SUFFIXES: Final = (".jsonl.gz", ".jsonl", ".jsonl.open", ".open")
PARQUET_SUFFIX: Final = ".parquet"
SUFFIXES: Final = (*LOG_SUFFIXES, PARQUET_SUFFIX)
# by this file a directory is known as a report of ours: it may be replaced, and is no input
RUN_FILE: Final = "run.json"
_GLOB: Final = re.compile(r"[*?\[]")
# what Spark would take as a pattern
_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")
# one letter before the colon would be a drive
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
_SHORT: Final = re.compile(r"(?:[^/]+=[^/]*/)*[^/]+$")
_CHUNK: Final = 1 << 20
_SAMPLE: Final = 1 << 18
# how far the beginning's compression may lead astray
_LEAST, _MOST = 0.75, 1.33


def log_files(inputs: Iterable[str], warn: Callable[[str], None] = lambda _: None) -> list[str]:
    """The files of all inputs, sorted, each once; URLs come as they are, after the files.

    `warn` is told, in a line each, what is passed over although it is named like a log.

    Raises:
        UsageError: an input names nothing, or nothing that is a log.
    """
    urls: set[str] = set()
    files: set[str] = set()
    for text in inputs:
        if is_url(text):
            urls.add(text)
        else:
            files.update(_local_files(text, warn))
    return [*sorted(files), *sorted(urls)]


def _local_files(text: str, warn: Callable[[str], None]) -> list[str]:
    if text == "-":
        raise UsageError("-: standard input is not read; name files or directories")
    if not text:
        raise UsageError("'': INPUT is empty; name a file, a directory or a glob")
    plain = re.sub(r"^file://", "", text, flags=re.IGNORECASE)
    matches = _matches(plain)
    if not matches:
        raise UsageError(f"{text}: no such file or directory")
    found = [file for match in matches for file in _files_of(match, warn)]
    if not found:
        raise UsageError(f"{text}: contains no log (files ending with {', '.join(SUFFIXES)})")
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


def _files_of(path: Path, warn: Callable[[str], None]) -> list[str]:
    if path.is_dir() and path.suffix != PARQUET_SUFFIX:
        return [str(file) for file in _walk(path, warn)]
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: not a log; the name of a log ends with one of {', '.join(SUFFIXES)}")
    _require_readable(path)
    return [str(path.resolve())]


def _require_readable(path: Path) -> None:
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path}: permission denied")


def _walk(folder: Path, warn: Callable[[str], None]) -> list[Path]:
    """The logs below a directory; like Spark, nothing that begins with `_` or `.`.

    Raises:
        UsageError: something below may not be read: its lines would be missing without a word.
    """
    found: list[Path] = []
    for root, folders, names in os.walk(folder.resolve(), onerror=_refuse):
        hidden = [name for name in folders if name.startswith(("_", "."))]
        whole = [name for name in folders if name.endswith(PARQUET_SUFFIX)]
        # what this program wrote is Parquet, too
        reports = [name for name in folders if is_report(Path(root, name))]
        folders[:] = [name for name in folders if name not in {*hidden, *whole, *reports}]
        logs = [Path(root, name) for name in (*names, *whole) if _is_log(name)]
        for path in logs:
            if path.exists():
                _require_readable(path)
                found.append(path)
            elif path.is_symlink():
                # the log behind it is gone, perhaps by retention; a file that has just been renamed is no link
                warn(f"skipped {path}: a link to nothing")
    return found


def _is_log(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(("_", "."))


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename}: {error.strerror}") from error


def literal(path: str) -> str:
    """The path as Spark takes it: what would be a pattern in it is escaped."""
    return path if is_url(path) else _SPECIAL.sub(r"\\\1", path)


def is_url(text: str) -> bool:
    """Whether it is for Spark to open: a scheme other than `file`."""
    match = _URL.match(text)
    return match is not None and match["scheme"].lower() != "file"


def is_report(directory: Path) -> bool:
    """Whether this directory is a finished report of ours."""
    try:
        run = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(run, dict) and run.get("program") == PROGRAM


def short_name(path: str) -> str:
    """The base name with the folders of its day and hour."""
    plain = unquote(path)
    found = _SHORT.search(plain.rstrip("/"))
    return found[0] if found else plain


def truncated(files: Sequence[str]) -> list[str]:
    """The local gzip files that end too early, or are damaged: Spark reads them up to there, and says nothing."""
    return [file for file in files if file.endswith(".gz") and not is_url(file) and not _is_whole(Path(file))]


def _is_whole(path: Path) -> bool:
    """Whether all of it decompresses.

    To decompress everything here would take as long as Spark takes. The last four bytes say how long the content is;
    behind a cut they are anything. Where they fit what the beginning compresses to, they are believed.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
            content = zlib.decompressobj(wbits=31).decompress(head)
            file.seek(-4, os.SEEK_END)
            said = int.from_bytes(file.read(4), "little")
            expected = len(content) * size / len(head)
            if size > _SAMPLE and _LEAST * expected < said < _MOST * expected:
                return True
            file.seek(0)
            return _decompresses(file)
    except (OSError, ZeroDivisionError, zlib.error):
        return False


def _decompresses(file: BinaryIO) -> bool:
    """Whether all members do; what comes out is thrown away at once."""
    member = zlib.decompressobj(wbits=31)
    while chunk := file.read(_CHUNK):
        while chunk:
            member.decompress(chunk)
            chunk = member.unused_data
            if member.eof and chunk:
                member = zlib.decompressobj(wbits=31)
    return member.eof
