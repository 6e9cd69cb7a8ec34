"""The option --follow: each new closed file is read once, and its lines are kept as tables beside the report.

A file that ends too early may still be copied: its lines are kept apart, and it is read again when its size changes.
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
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import file_bytes, files_below, truncated
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
    return [*_new_or_changed(source, aside), *_tables(aside)]


def take_in(engine: Engine, source: Path, aside: Path) -> tuple[list[str], dict[str, bool]]:
    """Read the new files into tables.

    Returns: the tables of all lines; their log files, and for each whether it was whole.
    """
    new = _new_or_changed(source, aside)
    # before the reading, since a file may grow meanwhile
    cut = {file: file_bytes(file) for file in truncated(new)}
    if whole := [file for file in new if file not in cut]:
        engine.write_lines(whole, aside / STATE / _LINES)
    for file in new:
        folder = aside / STATE / _CUT / hashlib.sha256(_without_suffix(file).encode()).hexdigest()
        if folder.exists():
            shutil.rmtree(folder)
        if file in cut:
            engine.write_lines([file], folder)
    files, sizes = _state(aside)
    changed = set(map(_without_suffix, new))
    files = {file: is_whole for file, is_whole in files.items() if _without_suffix(file) not in changed}
    files |= {file: file not in cut for file in new}
    sizes = {file: size for file, size in sizes.items() if file in files} | cut
    write_json(aside / STATE / _SOURCE, {"source": str(source), "files": files, "truncated_bytes": sizes})
    return _tables(aside), files


def _state(aside: Path) -> tuple[dict[str, bool], dict[str, int]]:
    """The files that were read, and for each whether it was whole; the sizes of those that were not."""
    state = json.loads((aside / STATE / _SOURCE).read_text(encoding="utf-8"))
    # Reports made before 0.1.0 have no sizes: their lines of truncated files are among those of other files.
    return state["files"], state.get("truncated_bytes", {})


def _new_or_changed(source: Path, aside: Path) -> list[str]:
    """The files that have not been read, and truncated ones that have changed since."""
    files, sizes = _state(aside)
    read = {_without_suffix(file): file for file in files}

    def is_new(file: str) -> bool:
        before = read.get(_without_suffix(file))
        return before is None or (before in sizes and (file, file_bytes(file)) != (before, sizes[before]))

    listed = (str(file) for file in files_below(source) if file.name.endswith(_CLOSED))
    return sorted(file for file in listed if is_new(file))


def _without_suffix(file: str) -> str:
    """The path of a log, before its compaction and after."""
    return next(file.removesuffix(suffix) for suffix in (*_CLOSED, "") if file.endswith(suffix))


def _tables(aside: Path) -> list[str]:
    state = aside / STATE
    return sorted(str(file) for pattern in (f"{_LINES}/*", f"{_CUT}/*/*") for file in state.glob(f"{pattern}.parquet"))
