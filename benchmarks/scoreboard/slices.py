"""Rows that take hours, in slices: a run that was ended is continued by the next run on the same files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.build import ROOT
from benchmarks.scoreboard.page import version_of
from tests.support.journal import Journal

JOURNALS: Final = ROOT / "build" / "scoreboard"

# Runs a slice from its first number on, of at most as many as are left; the result has "count" and further figures.
RunSlice = Callable[[int, int], dict[str, Any]]


def finished(path: Path, files: Sequence[str], total: int, run: RunSlice) -> list[dict[str, Any]]:
    """Run slices until those on the present version of the files have this total; return all of these slices."""
    journal, version = Journal(path), version_of(files)

    def ended() -> list[dict[str, Any]]:
        return [entry for entry in journal.entries() if entry["files"] == version]

    while (first := sum(entry["count"] for entry in ended())) < total:
        journal.add(files=version, **run(first, total - first))
    return ended()
