"""The option --follow: each new closed file is read once, and its lines are kept as tables beside the report."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.command.output import write_json
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import files_below, truncated
from namesrv_spark_jobs.log_folders import CLOSED_SUFFIX, PARQUET_SUFFIX

# the folder below the report; its name is hidden from programs that read the report's folder as tables
STATE: Final = ".follow"
_SOURCE: Final = "source.json"
_LINES: Final = "lines"
# Only closed files, compacted ones too: later lines of an open one would never be read.
_CLOSED: Final = (CLOSED_SUFFIX, ".jsonl", PARQUET_SUFFIX)


def followed_directory(inputs: Sequence[str]) -> Path:
    """The directory to follow. Raises UsageError unless INPUT is exactly one directory."""
    if len(inputs) != 1:
        raise UsageError(f"--follow takes one INPUT, a directory; {len(inputs)} given")
    folder = Path(inputs[0].removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise UsageError(f"{inputs[0]}: no such directory; --follow takes a directory of closed logs")
    return folder.resolve()


def inherit(out: Path, aside: Path, source: Path) -> None:
    """Begin with the tables of the last run. They are hard links, so the old report stays whole. Raises UsageError."""
    state = aside / STATE
    if not (out / STATE).is_dir():
        state.mkdir()
        write_json(state / _SOURCE, {"source": str(source), "files": {}})
        return
    before = json.loads((out / STATE / _SOURCE).read_text(encoding="utf-8"))["source"]
    if before != str(source):
        raise UsageError(f"--out {out}: follows {before}, not {source}; use another --out")
    shutil.copytree(out / STATE, state, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # the file system has no hard links
        shutil.copy2(source, target)


def to_read(source: Path, aside: Path) -> list[str]:
    """The files that the report will need: new log files, and the tables of earlier runs."""
    return [*_new(source, aside), *_tables(aside)]


def take_in(engine: Engine, source: Path, aside: Path) -> tuple[list[str], dict[str, bool]]:
    """Read the new files into tables.

    Returns: the tables of all lines; their log files, and for each whether it was whole.
    """
    if new := _new(source, aside):
        engine.write_lines(new, aside / STATE / _LINES)
    cut = truncated(new)
    files = {**_files(aside), **{file: file not in cut for file in new}}
    write_json(aside / STATE / _SOURCE, {"source": str(source), "files": files})
    return _tables(aside), files


def _files(aside: Path) -> dict[str, bool]:
    files: dict[str, bool] = json.loads((aside / STATE / _SOURCE).read_text(encoding="utf-8"))["files"]
    return files


def _new(source: Path, aside: Path) -> list[str]:
    read = {_without_suffix(file) for file in _files(aside)}
    listed = (str(file) for file in files_below(source) if file.name.endswith(_CLOSED))
    return sorted(file for file in listed if _without_suffix(file) not in read)


def _without_suffix(file: str) -> str:
    """The path of a log, before its compaction and after."""
    return next(file.removesuffix(suffix) for suffix in (*_CLOSED, "") if file.endswith(suffix))


def _tables(aside: Path) -> list[str]:
    return sorted(str(file) for file in (aside / STATE / _LINES).glob("*.parquet"))
