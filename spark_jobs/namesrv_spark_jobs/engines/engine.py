"""The interface of the engines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from namesrv_spark_jobs.frames import DataFrame, Dialect

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Hints for an engine that stores the table of all log lines."""

    # most readers need the rows with one value of this column
    by: str
    # columns that are null in nearly all rows
    sparse: tuple[str, ...] = ()
    # columns with a different value in nearly every row
    distinct: tuple[str, ...] = ()


class Engine(Dialect, Protocol):
    """Reads lines, stores tables for the duration of one analysis, and writes the results."""

    def describe(self) -> dict[str, str | None]:
        """Name, version and master of the engine, for run.json."""

    def lines_stored(
        self,
        files: Sequence[str],
        made: Callable[[DataFrame], DataFrame],
        named: Callable[[DataFrame], DataFrame],
        shape: Shape,
    ) -> tuple[DataFrame, DataFrame]:
        """The stored result of `made` for all lines of the files, and of `named` for a table of the files.

        The lines have the columns of `schema.LINE`, `corrupt_line` and `file`; the table of files has `file` and
        `name`. Both results are computed before the call returns.

        Raises:
            MissingFileError: a file was removed or renamed.
        """

    def stored(self, table: DataFrame, name: str, *, by: str | None = None) -> DataFrame:
        """The same table, computed before the call returns; most readers need the rows with one value of `by`."""

    def all_stored(self, **tables: DataFrame) -> dict[str, DataFrame]:
        """The same tables, by name, as `stored` would return them; they must be small and independent of each other."""

    def spread(self, table: DataFrame, key: str, rows: int) -> DataFrame:
        """The same table, which has about `rows` rows, divided by a key among the tasks."""

    def collected(self, tables: Mapping[str, DataFrame]) -> dict[str, Rows]:
        """The rows of small tables, by the names of the tables."""

    def write_lines(self, files: Sequence[str], folder: Path) -> None:
        """Write all lines of these files as tables into this folder, which can be read like log files."""

    def write_parquet(self, table: DataFrame, folder: Path, *, by: str) -> None:
        """Write the rows of a table, sorted, into one folder for each value of `by`."""

    def write_json(self, table: DataFrame, folder: Path) -> None:
        """Write the rows of a table as JSON Lines into one file in this folder."""
