"""What an analysis asks of an engine, whichever it is."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.frames import DataFrame, Dialect

Rows = list[dict[str, Any]]
# compacted files of development versions have it: many heartbeats in one row
_MANY_IN_ONE: Final = "run_1"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How what is made of lines may be stored."""

    # who reads it mostly asks for one value of this column
    by: str
    # in nearly all lines there is nothing in these columns
    sparse: tuple[str, ...] = ()
    # nearly all lines have a value of their own in these columns
    distinct: tuple[str, ...] = ()


class Engine(Dialect, Protocol):
    """Reads lines, stores tables for as long as one analysis lasts, and writes what stays."""

    def describe(self) -> dict[str, str | None]:
        """What it is, for run.json."""

    def lines_stored(
        self,
        files: Sequence[str],
        made: Callable[[DataFrame], DataFrame],
        named: Callable[[DataFrame], DataFrame],
        shape: Shape,
    ) -> tuple[DataFrame, DataFrame]:
        """What is `made` of all lines of these files, and what is `named`, made of a table of them (`file`, `name`).

        Both are computed now.
        The lines are in the columns of `schema.LINE`, with `corrupt_line` and their `file`.

        Raises:
            MissingFileError: a file has gone.
        """

    def stored(self, table: DataFrame, name: str, *, by: str | None = None) -> DataFrame:
        """The same table, computed now; who reads it mostly asks for one value of `by`."""

    def all_stored(self, **tables: DataFrame) -> dict[str, DataFrame]:
        """Small tables that do not need each other, by their names."""

    def spread(self, table: DataFrame, key: str, rows: int) -> DataFrame:
        """The same table of so many rows, divided by a key among whoever computes."""

    def collected(self, tables: Mapping[str, DataFrame]) -> dict[str, Rows]:
        """The rows of small tables, by their names."""

    def write_lines(self, files: Sequence[str], folder: Path) -> None:
        """Keep all lines of these files as tables in this folder, to be read as files are."""

    def write_parquet(self, table: DataFrame, folder: Path, *, by: str) -> None:
        """Write the rows of a table, sorted, into a folder for each value of `by`."""

    def write_json(self, table: DataFrame, folder: Path) -> None:
        """Write the rows of a table as JSON Lines into one file in this folder."""


def require_lines(columns: Collection[str]) -> None:
    """Raise UsageError for the columns of tables that do not have one line in each row."""
    if _MANY_IN_ONE in columns:
        raise UsageError(
            "a .parquet file was compacted before 0.1.0; remove it, and run `namesrv-staleness compact` again"
        )
