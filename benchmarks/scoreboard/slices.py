"""Rows that take hours, in slices: the next run continues an interrupted one, while the row's files are unchanged.

A journal in `build/` has the finished slices. Without it, a run continues after the seeds of the row's record.
"""

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import Figure, none_of
from benchmarks.scoreboard.page import version_of
from tests.support.journal import Journal

JOURNALS: Final = ROOT / "build" / "scoreboard"

# Runs one slice: takes its first number and the count that is left. Returns "count", "failed" (descriptions), and more.
RunSlice = Callable[[int, int], dict[str, Any]]


def finished(path: Path, files: Sequence[str], total: int, run: RunSlice) -> list[dict[str, Any]]:
    """Run slices until those of this version of the files add up to `total`, or one has failed; return them all."""
    journal, version = Journal(path), version_of(files)

    def of_version() -> list[dict[str, Any]]:
        return [entry for entry in journal.entries() if entry["version"] == version]

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        # A second run waits: both would take the same numbers.
        fcntl.flock(lock, fcntl.LOCK_EX)
        while (first := count_of(of_version())) < total and not failures_of(of_version()):
            journal.add(version=version, **run(first, total - first))
        return of_version()


def begin_after(path: Path, files: Sequence[str], count: int, seconds: float) -> None:
    """Let the next run continue after `count` seeds without a failure, unless the journal has more of this version."""
    journal, version = Journal(path), version_of(files)
    done = count_of([entry for entry in journal.entries() if entry["version"] == version])
    if count > done:
        share = (count - done) / count
        journal.add(version=version, count=count - done, seconds=seconds * share, failed=[])


def count_of(slices: Sequence[dict[str, Any]]) -> int:
    """The sum of the slices' counts."""
    return sum(each["count"] for each in slices)


def failures_of(slices: Sequence[dict[str, Any]]) -> list[str]:
    """The descriptions of all that failed."""
    return [failure for each in slices for failure in each["failed"]]


def failed(name: str, what: str, slices: Sequence[dict[str, Any]]) -> Figure:
    """The number of failures in slices, with the first five."""
    return described(name, what, failures_of(slices), count_of(slices))


def described(name: str, what: str, failures: Sequence[str], count: int) -> Figure:
    """The number of failures among `count`, with the first five."""
    return none_of(name, what, len(failures), "; ".join((f"of {count:,}", *failures[:5])))
