"""Log files: which ones an INPUT names, their short names, and whether their gzip is whole."""

import glob
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from namesrv_spark_jobs.errors import PROGRAM, UsageError

CLOSED_SUFFIX: Final = ".jsonl.gz"
# what the daemon and the client write: closed, plain, and open (or left by a crash)
LOG_SUFFIXES: Final = (CLOSED_SUFFIX, ".jsonl", ".jsonl.open", ".open")
PARQUET_SUFFIX: Final = ".parquet"
SUFFIXES: Final = (*LOG_SUFFIXES, PARQUET_SUFFIX)
# by this file a directory is known as a report of ours: it may be replaced, and is no input
RUN_FILE: Final = "run.json"
# Where a daemon keeps its heartbeat log and, beside that, its audit trail, which has other lines under the same names.
_HEARTBEATS, _AUDIT = "heartbeats", "audit"
# what Spark would take as a pattern
_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")
# one letter before the colon would be a drive
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
_SHORT: Final = re.compile(r"(?:[^/]+=[^/]*/)*[^/]+$")
_CHUNK: Final = 1 << 20
_SAMPLE: Final = 1 << 18
# how many bytes of JSON one of a compressed log stands for
_INFLATED: Final = 15
# how far the beginning's compression may lead astray
_LEAST, _MOST = 0.75, 1.33


def log_files(inputs: Iterable[str], warn: Callable[[str], None] = lambda _: None) -> list[str]:
    """The files of all inputs, sorted, each once, then URLs as they are. Raises UsageError for an input without a log.

    `warn` is told, in a line each, what is passed over although it is named like a log.
    """
    named = set(inputs)
    urls = {text for text in named if is_url(text)}
    files = {file for text in named - urls for file in _local_files(text, warn)}
    return [*sorted(files), *sorted(urls)]


def _local_files(text: str, warn: Callable[[str], None]) -> list[str]:
    if text == "-":
        raise UsageError("-: standard input is not read; name files or directories")
    if not text:
        raise UsageError("'': INPUT is empty; name a file, a directory or a glob")
    path = Path(re.sub(r"^file://", "", text, flags=re.IGNORECASE)).expanduser()
    # a path that exists is that path, whatever characters it has; otherwise it may be a glob, and pathlib has none
    # with a root
    matches = [path] if path.exists() else [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    if not matches:
        raise UsageError(f"{text}: no such file or directory")
    found: list[Path] = []
    for match in matches:
        if match.is_dir() and match.suffix != PARQUET_SUFFIX:
            found += _walk(match, warn)
        elif match.name.endswith(SUFFIXES):
            found.append(match.resolve())
        else:
            raise UsageError(f"{match}: not a log; the name of a log ends with one of {', '.join(SUFFIXES)}")
    if not found:
        raise UsageError(f"{text}: contains no log (files ending with {', '.join(SUFFIXES)})")
    for file in found:
        if not os.access(file, os.R_OK):
            raise UsageError(f"{file}: permission denied")
    return [str(file) for file in found]


def _walk(folder: Path, warn: Callable[[str], None]) -> list[Path]:
    """The logs below a directory; like Spark, nothing that begins with `_` or `.`."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder.resolve(), onerror=_refuse):
        whole = [name for name in folders if name.endswith(PARQUET_SUFFIX)]
        folders[:] = [
            name
            for name in folders
            # what this program wrote is Parquet, too
            if not name.startswith(("_", ".")) and name not in whole and not is_report(Path(root, name))
            if not (name == _AUDIT and _HEARTBEATS in folders)
        ]
        for name in (*names, *whole):
            path = Path(root, name)
            if not name.endswith(SUFFIXES) or name.startswith(("_", ".")):
                continue
            if name.endswith(CLOSED_SUFFIX) and compacted_of(path).name in names:
                # the same lines are in there
                continue
            if path.exists():
                found.append(path)
            elif path.is_symlink():
                # the log behind it is gone, perhaps by retention; a file that has just been renamed is no link
                warn(f"skipped {path}: a link to nothing")
    return found


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename}: {error.strerror}") from error


def divided(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tables, and texts."""
    tables = [file for file in files if file.rstrip("/").endswith(PARQUET_SUFFIX)]
    return tables, [file for file in files if file not in tables]


def literal(path: str) -> str:
    """The path as Spark takes it: what would be a pattern in it is escaped."""
    return path if is_url(path) else _SPECIAL.sub(r"\\\1", path)


def is_url(text: str) -> bool:
    """Whether it is for Spark to open: a scheme other than `file`."""
    match = _URL.match(text)
    return match is not None and match["scheme"].lower() != "file"


def file_bytes(file: str) -> int:
    """Size of a file, or of a folder of tables; 0 if it was renamed meanwhile."""
    path = Path(file.removeprefix("file://"))
    files = list(path.rglob("*")) if path.is_dir() else [path]
    try:
        return sum(each.stat().st_size for each in files)
    except OSError:
        return 0


def json_bytes(file: str) -> int:
    """Approximate size of the JSON lines in a file, or in a folder of tables."""
    size = file_bytes(file)
    return size if file.endswith((".jsonl", ".open")) else size * _INFLATED


def compacted_of(file: Path) -> Path:
    """Where the lines of a closed file are once they have been compacted."""
    return file.with_name(file.name.removesuffix(CLOSED_SUFFIX) + PARQUET_SUFFIX)


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
            member = zlib.decompressobj(wbits=31)
            while chunk := file.read(_CHUNK):
                while chunk:
                    # what comes out is thrown away at once
                    member.decompress(chunk)
                    chunk = member.unused_data
                    if member.eof and chunk:
                        member = zlib.decompressobj(wbits=31)
            return member.eof
    except (OSError, ZeroDivisionError, zlib.error):
        return False
