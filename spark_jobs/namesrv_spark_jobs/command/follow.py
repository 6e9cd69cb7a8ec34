"""The option --follow: each new closed file is read once, and its lines are kept as tables beside the report.

A file that ends too early may still be copied: its lines are kept apart, and it is read again once it has changed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.command.output import write_json
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import PROGRAM, UsageError
from namesrv_spark_jobs.log_files import expanded, files_below, require_utf8, truncated
from namesrv_spark_jobs.log_folders import CLOSED_SUFFIX, PARQUET_SUFFIX

# the folder below the report; its name is hidden from programs that read the report's folder as tables
STATE: Final = ".follow"
_SOURCE: Final = "source.json"
_LINES: Final = "lines"
# a folder for each truncated file
_CUT: Final = "cut"
# Only closed files, compacted ones too: later lines of an open one would never be read.
_CLOSED: Final = (CLOSED_SUFFIX, ".jsonl", PARQUET_SUFFIX)


def followed_directory(inputs: Sequence[str]) -> Path:
    """The directory to follow. Raises UsageError unless INPUT is exactly one directory."""
    if len(inputs) != 1:
        raise UsageError(f"--follow takes one INPUT, a directory; {len(inputs)} given")
    folder = expanded(inputs[0].removeprefix("file://"))
    if not folder.is_dir():
        raise UsageError(f"{inputs[0]}: no such directory; --follow takes a directory of closed logs")
    require_utf8(str(folder.resolve()))
    return folder.resolve()


def refuse_followed(out: Path) -> None:
    """Raise UsageError if DIR has lines of earlier runs, which may be in no log any more, and would be removed."""
    if (out / STATE).is_dir():
        raise UsageError(f"--out {out}: has the lines that --follow keeps; use --follow, or another --out")


def inherit(out: Path, aside: Path, source: Path) -> None:
    """Begin with the tables of the last run. They are hard links, so the old report stays whole. Raises UsageError."""
    state = aside / STATE
    if not (out / STATE).is_dir():
        state.mkdir()
        write_json(state / _SOURCE, {"source": str(source), "files": {}, "truncated": {}})
        return
    before = _followed_source(out)
    if before != str(source):
        raise UsageError(f"--out {out}: follows {before}, not {source}; use another --out")
    shutil.copytree(out / STATE, state, copy_function=_link)


def _followed_source(out: Path) -> str:
    """The directory that a report follows. Raises UsageError unless the state has the form of this version."""
    try:
        state = json.loads((out / STATE / _SOURCE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        state = None
    match state:
        case {"source": str(source), "files": dict(), "truncated": dict()}:
            return source
    raise UsageError(f"--out {out}: {out / STATE} was not written by this version of {PROGRAM}; use another --out")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # the file system has no hard links
        shutil.copy2(source, target)


def to_read(source: Path, aside: Path) -> list[str]:
    """The files that the report will need: new log files, and the tables of earlier runs."""
    return [*_new_or_changed(source, aside), *_tables(aside)]


def take_in(engine: Engine, source: Path, aside: Path) -> tuple[list[str], dict[str, bool]]:
    """Read the new files into tables.

    Returns: the tables of all lines; their log files, and for each whether it was whole.
    """
    new = _new_or_changed(source, aside)
    # before the check and the reading, since a file may be written meanwhile
    versions = {file: _version(file) for file in new}
    cut = {file: versions[file] for file in truncated(new)}
    if whole := [file for file in new if file not in cut]:
        engine.write_lines(whole, aside / STATE / _LINES)
    for file in new:
        folder = aside / STATE / _CUT / hashlib.sha256(_without_suffix(file).encode()).hexdigest()
        if folder.exists():
            shutil.rmtree(folder)
        # a truncated table has no readable line
        if file in cut and not file.endswith(PARQUET_SUFFIX):
            engine.write_lines([file], folder)
    files, before = _state(aside)
    changed = set(map(_without_suffix, new))
    files = {file: is_whole for file, is_whole in files.items() if _without_suffix(file) not in changed}
    before = {file: version for file, version in before.items() if file in files}
    files |= {file: file not in cut for file in new}
    write_json(aside / STATE / _SOURCE, {"source": str(source), "files": files, "truncated": before | cut})
    return _tables(aside), files


def _version(file: str) -> list[int]:
    """The size and the time of the last change of a file: a copy may reserve the whole size before it is written."""
    try:
        status = Path(file).stat()
    except FileNotFoundError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _state(aside: Path) -> tuple[dict[str, bool], dict[str, list[int]]]:
    """The files that were read, and for each whether it was whole; the versions of those that were not."""
    state = json.loads((aside / STATE / _SOURCE).read_text(encoding="utf-8"))
    return state["files"], state["truncated"]


def _new_or_changed(source: Path, aside: Path) -> list[str]:
    """The files that have not been read, and truncated ones that have changed since."""
    files, cut = _state(aside)
    read = {_without_suffix(file): file for file in files}

    def is_new(file: str) -> bool:
        before = read.get(_without_suffix(file))
        return before is None or (before in cut and (file, _version(file)) != (before, cut[before]))

    listed = [str(file) for file in files_below(source) if file.name.endswith(_CLOSED)]
    # The names are kept as JSON.
    for file in listed:
        require_utf8(file)
    return sorted(file for file in listed if is_new(file))


def _without_suffix(file: str) -> str:
    """The path of a log, before its compaction and after."""
    return next(file.removesuffix(suffix) for suffix in (*_CLOSED, "") if file.endswith(suffix))


def _tables(aside: Path) -> list[str]:
    state = aside / STATE
    return sorted(str(file) for pattern in (f"{_LINES}/*", f"{_CUT}/*/*") for file in state.glob(f"{pattern}.parquet"))
