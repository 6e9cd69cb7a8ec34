"""Names in the folders of logs: closed and compacted files, audit trails, and reports.

Both the history and the report search folders of logs; the wheel of the history contains this module.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.errors import PROGRAM

CLOSED_SUFFIX: Final = ".jsonl.gz"
PARQUET_SUFFIX: Final = ".parquet"
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
