"""Names in the folders of logs: closed and compacted files, audit trails, and reports.

Both the history and the report search folders of logs.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.errors import PROGRAM

CLOSED_SUFFIX: Final = ".jsonl.gz"
PARQUET_SUFFIX: Final = ".parquet"
# suffixes of the daemon's and the client's logs: closed, plain, open (also after a crash), and compacted
SUFFIXES: Final = (CLOSED_SUFFIX, ".jsonl", ".jsonl.open", ".open", PARQUET_SUFFIX)
# The directories of a daemon's heartbeat log and, beside it, of its audit trail, whose files have the same suffixes.
HEARTBEATS: Final = "heartbeats"
_AUDIT: Final = "audit"
# A directory with this file is a report of this program: it may be replaced, and is not searched for input.
RUN_FILE: Final = "run.json"


def is_audit_trail(folder: Path) -> bool:
    """True for the folder of a daemon's audit trail, which stands beside its heartbeat log."""
    return folder.name == _AUDIT and folder.with_name(HEARTBEATS).is_dir()


def compacted_of(file: Path) -> Path:
    """The path of the compacted file for a closed file."""
    return file.with_name(file.name.removesuffix(CLOSED_SUFFIX) + PARQUET_SUFFIX)


def is_compacted(file: Path, names: Collection[str]) -> bool:
    """True for a closed file beside its compacted file, which has the same lines; `names` are those in its folder."""
    return file.name.endswith(CLOSED_SUFFIX) and compacted_of(file).name in names


def is_report(directory: Path) -> bool:
    """True if the directory is a finished report of this program."""
    try:
        run = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(run, dict) and run.get("program") == PROGRAM


def _every(_root: str, _name: str) -> bool:
    return True


def logs_below(
    folder: Path, refuse: Callable[[OSError], None], is_wanted: Callable[[str, str], bool] = _every
) -> Iterator[Path]:
    """The paths below a directory that have the name of a log; see `folders_below` for the arguments."""
    for root, names in folders_below(folder, refuse, is_wanted):
        for name in names:
            path = Path(root, name)
            if name.endswith(SUFFIXES) and not is_compacted(path, names):
                yield path


def folders_below(
    folder: Path, refuse: Callable[[OSError], None], is_wanted: Callable[[str, str], bool] = _every
) -> Iterator[tuple[str, list[str]]]:
    """A directory and those below it that may contain logs, each with the names in it of files and tables.

    As in Spark, names with `_` or `.` first are skipped. Links to directories are followed, and each directory is
    searched once.

    `refuse` gets the error for each folder that cannot be read; `is_wanted` decides by path and name whether a folder
    is searched.
    """

    def refuse_unless_removed(error: OSError) -> None:
        # The retention of a running server removes the folders of old hours.
        if not isinstance(error, FileNotFoundError):
            refuse(error)

    def is_searched(root: str, name: str) -> bool:
        if name.startswith(("_", ".")) or not is_wanted(root, name):
            return False
        path = Path(root, name)
        # a report contains Parquet, too, and is not input
        return not (is_audit_trail(path) or is_report(path))

    # Links may lead to a directory twice, or round in a circle.
    searched: set[str] = set()
    for root, folders, names in os.walk(folder, onerror=refuse_unless_removed, followlinks=True):
        place = os.path.realpath(root)
        if place in searched:
            folders.clear()
            continue
        searched.add(place)
        # a table of Spark's is a folder
        tables = [name for name in folders if name.endswith(PARQUET_SUFFIX)]
        folders[:] = sorted(name for name in folders if name not in tables and is_searched(root, name))
        yield root, [name for name in (*names, *tables) if not name.startswith(("_", "."))]
