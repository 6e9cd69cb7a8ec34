"""Following a log: new closed files are read once, and kept as tables beside the report."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.command.output import write_json
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import truncated

# below the report; hidden, so that whoever reads the report's folder as tables does not meet it
STATE: Final = ".follow"
_SOURCE: Final = "source.json"
_LINES: Final = "lines"
# what is still being written would be taken in once and never again
_CLOSED: Final = (".jsonl", ".jsonl.gz")


def followed_directory(inputs: Sequence[str]) -> Path:
    """The one directory that is followed; a UsageError when it is not one, or no directory."""
    if len(inputs) != 1:
        raise UsageError(f"--follow takes one INPUT, a directory; there are {len(inputs)}")
    folder = Path(inputs[0].removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise UsageError(f"{inputs[0]}: no such directory; --follow takes a directory of closed logs")
    return folder.resolve()


def inherit(out: Path, aside: Path, source: Path) -> None:
    """Begin with what the last run took in, linked: the old report stays whole. Raises UsageError."""
    state = aside / STATE
    if not (out / STATE).is_dir():
        state.mkdir()
        write_json(state / _SOURCE, {"source": str(source), "files": {}})
        return
    before = json.loads((out / STATE / _SOURCE).read_text(encoding="utf-8"))["source"]
    if before != str(source):
        raise UsageError(f"--out {out}: follows {before}, not {source}; take another --out")
    shutil.copytree(out / STATE, state, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # a file system without links
        shutil.copy2(source, target)


def to_read(source: Path, aside: Path) -> list[str]:
    """What a report is made of: new files, and tables of what was taken in before."""
    return [*_new(source, aside), *_tables(aside)]


def take_in(engine: Engine, source: Path, aside: Path) -> tuple[list[str], dict[str, bool]]:
    """Read the files that are new.

    Returns: tables with every line that was ever taken in; the files that these are from, and whether each is whole.
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
    listed = {str(file) for file in source.rglob("*") if file.name.endswith(_CLOSED) and _is_visible(file, source)}
    return sorted(listed - _files(aside).keys())


def _tables(aside: Path) -> list[str]:
    return sorted(str(file) for file in (aside / STATE / _LINES).glob("*.parquet"))


def _is_visible(file: Path, source: Path) -> bool:
    """As everywhere, what begins with `_` or `.` is passed over."""
    return file.is_file() and not any(part.startswith(("_", ".")) for part in file.relative_to(source).parts)
