"""Log files: the files that an INPUT names, and a check for truncated files."""

import glob
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_folders import PARQUET_SUFFIX, SUFFIXES, logs_below

# at least two letters before the colon: one letter would be a drive
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
# schemes with file systems of Hadoop that cannot list files
_UNLISTED: Final = ("http", "https")
# characters of a path that Java's URI leaves as they are, besides letters and digits
_UNESCAPED: Final = "/;:@&=+$,-_.!~*'()"
# the first and the last bytes of a Parquet file
_PARQUET: Final = b"PAR1"
# the first bytes of a compressed file
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_SAMPLE: Final = 1 << 18
# the ratios of recorded to expected size between which the recorded size is trusted, see `_is_whole`
_LEAST, _MOST = 0.75, 1.33


def log_files(inputs: Iterable[str], warn: Callable[[str], None] = lambda _: None) -> list[str]:
    """The files of all inputs, sorted and without duplicates, then the URLs.

    Raises UsageError for an input without a log. `warn` is called with one line for each path that is skipped although
    it has the name of a log.
    """
    named = set(inputs)
    urls = {text for text in named if is_url(text)}
    for url in sorted(urls):
        if url.lower().partition(":")[0] in _UNLISTED:
            raise UsageError(f"{url}: Spark cannot list files over HTTP; download the logs")
    files = {file for text in named - urls for file in _local_files(text, warn)}
    return [*sorted(files), *sorted(urls)]


def _local_files(text: str, warn: Callable[[str], None]) -> list[str]:
    if text == "-":
        raise UsageError("-: standard input is not read; name files or directories")
    if not text:
        raise UsageError("'': INPUT is empty; name a file, a directory or a glob")
    path = expanded(re.sub(r"^file://", "", text, flags=re.IGNORECASE))
    # A path that exists is taken literally, even with the characters of a pattern. Any other is a glob; pathlib's globs
    # cannot begin with a root.
    matches = [path] if path.exists() else [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    if not matches:
        raise UsageError(f"{text}: no such file or directory")
    paths: list[Path] = []
    for match in matches:
        if match.is_dir() and match.suffix != PARQUET_SUFFIX:
            paths += files_below(match, warn)
        else:
            paths.append(_named(match))
    if not paths:
        raise UsageError(f"{text}: contains no log (files ending with {', '.join(SUFFIXES)})")
    for file in paths:
        if not os.access(file, os.R_OK):
            raise UsageError(f"{file}: permission denied")
    return [str(file) for file in paths]


def _named(path: Path) -> Path:
    """A log that an INPUT names itself."""
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: not a log; the name of a log ends with one of {', '.join(SUFFIXES)}")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path}: not a regular file")
    return path.resolve()


def expanded(text: str) -> Path:
    """The path with the home directory of a user in place of `~` or `~user`; as it is for an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def files_below(folder: Path, warn: Callable[[str], None] = lambda _: None) -> list[Path]:
    """The logs below a directory."""
    paths: list[Path] = []
    for path in logs_below(folder.resolve(), refused):
        if path.is_file() or path.is_dir():
            paths.append(path)
        elif path.exists():
            # to open a named pipe would take for ever
            warn(f"skipped {path}: not a regular file")
        elif path.is_symlink():
            # Retention may have removed the target. A plain file that does not exist was renamed just now.
            warn(f"skipped {path}: a link to nothing")
    return paths


def refused(error: OSError) -> None:
    """Raise UsageError for a directory that cannot be read."""
    raise UsageError(f"{error.filename}: {error.strerror}") from error


def divided(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """The Parquet tables, and the JSON files."""
    tables = [file for file in files if file.rstrip("/").endswith(PARQUET_SUFFIX)]
    return tables, [file for file in files if file not in tables]


def is_url(text: str) -> bool:
    """True for a URL that only Spark can open: one with a scheme other than `file`."""
    match = _URL.match(text)
    return match is not None and match["scheme"].lower() != "file"


def require_utf8(path: str) -> None:
    """Raise UsageError for a path that is not UTF-8, which Java and DuckDB cannot open."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{path}: the name is not UTF-8; rename it") from error


def file_url(path: Path) -> str:
    """The URL of a local file, escaped as Spark does it: `=` in the folders of days and hours stays as it is."""
    return f"file://{quote(os.fsencode(path.absolute()), safe=_UNESCAPED)}"


def truncated(files: Sequence[str]) -> list[str]:
    """The local gzip files and tables that end too early or are damaged.

    Spark reads such a gzip file up to that point, and nothing of such a table, without an error.
    """
    return [file for file in files if not is_url(file) and not _is_complete(Path(file))]


def _is_complete(path: Path) -> bool:
    if path.name.endswith(".gz"):
        return _is_whole(path)
    # a table may also be a folder of files
    return path.suffix != PARQUET_SUFFIX or path.is_dir() or _is_whole_table(path)


def _is_whole_table(path: Path) -> bool:
    """True if a Parquet file begins and ends as such files do: its schema is at its end."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(_PARQUET)) == _PARQUET
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4 - len(_PARQUET)))
            footer_bytes, ending = int.from_bytes(file.read(4), "little"), file.read()
    except OSError:
        return False
    return begins and ending == _PARQUET and footer_bytes <= size - 4 - 2 * len(_PARQUET)


def _is_whole(path: Path) -> bool:
    """True if the whole file decompresses, or seems to; as in gzip, other bytes may follow.

    Decompressing everything would take as long as Spark's reading. The last four bytes of a whole file are the length
    of its content; those of a truncated file are random. If they fit the compression ratio at the beginning, the file
    counts as whole; otherwise it is decompressed.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
            content = zlib.decompressobj(wbits=31).decompress(head)
            file.seek(-4, os.SEEK_END)
            recorded = int.from_bytes(file.read(4), "little")
            expected = len(content) * size / len(head)
    except (OSError, ZeroDivisionError, zlib.error):
        return False
    return (size > _SAMPLE and _LEAST * expected < recorded < _MOST * expected) or after_gzip(path) is not None


def after_gzip(path: Path) -> bytes | None:
    """The first bytes after the end of a compressed file, usually none; None if the file is damaged or truncated."""
    try:
        with path.open("rb") as file:
            member = zlib.decompressobj(wbits=31)
            while chunk := file.read(_CHUNK):
                while chunk:
                    if member.eof:
                        if not chunk.startswith(_GZIP[: len(chunk)]):
                            return chunk
                        member = zlib.decompressobj(wbits=31)
                    # the content itself is not needed
                    member.decompress(chunk)
                    chunk = member.unused_data
            return b"" if member.eof else None
    except (OSError, zlib.error):
        return None
