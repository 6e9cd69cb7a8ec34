"""The embedded engine: tables of DuckDB in this process, which are moved to disk when memory is short."""

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import duckdb

from namesrv_spark_jobs.engines.embedded import columns
from namesrv_spark_jobs.engines.embedded.columns import quoted, text
from namesrv_spark_jobs.engines.embedded.reading import (
    SUSPECT,
    Reading,
    files_of,
    of_bad,
    of_nothing,
    of_tables,
    of_texts,
    parquet,
)
from namesrv_spark_jobs.engines.embedded.tables import Row, Table
from namesrv_spark_jobs.engines.engine import Rows, Shape
from namesrv_spark_jobs.frames import DataFrame
from namesrv_spark_jobs.log_files import file_url
from namesrv_spark_jobs.transforms.schema import CORRUPT, LINE

# Delta encoding of numbers, which makes files up to a third smaller at no cost. Spark cannot read version 2's encoding
# of floating point numbers, and would skip such a file as damaged without an error: the table must not contain any.
_SMALL: Final = "PARQUET_VERSION V2"
# DuckDB's memory limit; tables beyond it go to disk
MEMORY: Final = "2GB"
# milliseconds with the three decimals that the daemon writes
_EXACT: Final = "DECIMAL(18, 3)"
# The hints for a table of plain lines. `by` must name a column, although no reader needs the lines of one event only.
_AS_LINES: Final = Shape(by="event")
_MACROS: Final = (
    # DuckDB's hashes are unsigned 64-bit numbers; a BIGINT has 63 bits and a sign
    "number_of(x) AS CAST(x >> 1 AS BIGINT)",
    "shiftleft(x, bits) AS CASE bits WHEN 63 THEN -9223372036854775808 ELSE x << bits END",
    # Spark's formula for percentiles
    """percentiles(xs, shares) AS list_transform(shares, lambda share: CASE WHEN len(xs) = 0 THEN NULL
        WHEN xs[below(xs, share)] = xs[above(xs, share)] THEN CAST(xs[below(xs, share)] AS DOUBLE)
        ELSE (above(xs, share) - 1 - place(xs, share)) * CAST(xs[below(xs, share)] AS DOUBLE)
            + (place(xs, share) - (below(xs, share) - 1)) * CAST(xs[above(xs, share)] AS DOUBLE) END)""",
    "place(xs, share) AS ((len(xs) - 1) * share)",
    "below(xs, share) AS (CAST(floor((len(xs) - 1) * share) AS BIGINT) + 1)",
    "above(xs, share) AS (CAST(ceil((len(xs) - 1) * share) AS BIGINT) + 1)",
)


class EmbeddedEngine:
    """A DuckDB database for one analysis, with a folder for tables that do not fit into memory."""

    functions: Any = columns
    window: Any = columns.Window

    def __init__(self, staging: Path, *, memory: str = MEMORY) -> None:
        self._staging = staging
        staging.mkdir(parents=True, exist_ok=True)
        self._numbers = count()
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": memory,
            "temp_directory": str(staging / "spilled"),
            "threads": len(os.sched_getaffinity(0)),
            # no query depends on the order of unsorted rows
            "preserve_insertion_order": False,
            # no extension is downloaded
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection = duckdb.connect(":memory:", config=settings)
        for macro in reversed(_MACROS):
            self._connection.execute(f"CREATE MACRO {macro}")

    def __repr__(self) -> str:
        return f"<EmbeddedEngine {self._staging}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._connection.close()

    def describe(self) -> dict[str, str | None]:
        return {"name": "embedded", "version": duckdb.__version__, "master": None}

    # the interface `tables.Database`

    def columns_of(self, sql: str) -> list[str]:
        return [name for name, _ in self._described(sql)]

    def _described(self, sql: str) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self._connection.execute(f"DESCRIBE {sql}").fetchall()]

    def rows_of(self, sql: str) -> list[Row]:
        result = self._connection.execute(sql)
        names = [column[0] for column in result.description or ()]
        return [Row(zip(names, row, strict=True)) for row in result.fetchall()]

    # the interface `engine.Engine`

    def stored(self, table: Any, name: str, *, by: str | None = None) -> Any:  # noqa: ARG002 - zones are known
        place = quoted(f"{name}_{next(self._numbers)}")
        # DuckDB's sums have 128 bits, but all values fit into 64
        kinds = self._described(table.sql)
        shown = ", ".join(
            f"CAST({quoted(column)} AS BIGINT) AS {quoted(column)}" if kind == "HUGEINT" else quoted(column)
            for column, kind in kinds
        )
        self._connection.execute(f"CREATE TEMP TABLE {place} AS SELECT {shown} FROM ({table.sql})")
        return Table(self, f"SELECT * FROM {place}", table.columns)

    def all_stored(self, **tables: DataFrame) -> dict[str, Any]:
        return {name: self.stored(table, name) for name, table in tables.items()}

    def spread(self, table: DataFrame, key: str, rows: int) -> DataFrame:  # noqa: ARG002 - DuckDB does by itself
        return table

    def collected(self, tables: Mapping[str, DataFrame]) -> dict[str, Rows]:
        made: Mapping[str, Any] = tables
        return {name: [dict(row) for row in table.collect()] for name, table in made.items()}

    def lines_stored(
        self,
        files: Sequence[str],
        made: Callable[[DataFrame], DataFrame],
        named: Callable[[DataFrame], DataFrame],
        shape: Shape,
    ) -> tuple[Any, Any]:
        reading = Reading(self._staging / f"read-{next(self._numbers)}", files)
        place = f"events_{next(self._numbers)}"
        try:
            events = self._taken(place, made, shape.sparse, reading)
        except duckdb.Error as error:
            # a file was removed, or is damaged in the middle
            reading.repair(reading.unreadable(error))
            events = self._taken(place, made, shape.sparse, reading)
        # DuckDB reads nearly all files as they are; files with lines outside of the contract are split line by line
        if suspects := self._suspects(events, reading.plain):
            listed = ", ".join(str(number) for number in suspects.values())
            self._connection.execute(f"DELETE FROM {place} WHERE file IN ({listed})")
            reading.repair(suspects)
        if reading.clean:
            for sql in (of_texts(reading.clean, are_split=True), of_bad(reading.bad)):
                more = _packed(_of(made, self._table(sql)), shape.sparse)
                self._connection.execute(f"INSERT INTO {place} BY NAME {more}")
        return events, self.stored(_of(named, self._names(reading)), "files")

    def _taken(
        self, place: str, made: Callable[[DataFrame], DataFrame], sparse: Sequence[str], reading: Reading
    ) -> Table:
        parts = [of_texts(reading.plain)] if reading.plain else []
        parts += [self._of_tables(reading)] if reading.tables else []
        lines = " UNION ALL BY NAME ".join(parts or [of_nothing()])
        events = _of(made, self._table(lines))
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {place} AS {_packed(events, sparse)}")
        unpacked = (f"struct_extract(rest[1], {text(name)}) AS {quoted(name)}" for name in sparse)
        dense = (quoted(name) for name in events.columns if name not in sparse)
        return self._table(f"SELECT {', '.join((*dense, *unpacked))} FROM {place}")

    def _names(self, reading: Reading) -> Any:
        names, knows_files = reading.names, "file" in self._kinds(reading)
        if not knows_files:
            # every line comes from the table's own file, so the rows need not be read
            names = {**names, **{str(file): file_url(file) for file in files_of(reading.tables)}}
        listed = ", ".join(f"({text(path)}, {text(name)})" for path, name in names.items())
        parts = [f"SELECT file, name FROM (VALUES {listed}) t(file, name)"] if listed else []
        if knows_files:
            # a row without `file` has the path of its table, which becomes a URL
            name = "CASE WHEN starts_with(file, '/') THEN 'file://' || file ELSE file END AS name"
            parts.append(f"SELECT DISTINCT file, {name} FROM ({self._of_tables(reading)})")
        return Table(self, " UNION ALL ".join(parts), ["file", "name"])

    def _kinds(self, reading: Reading) -> dict[str, str]:
        return dict(self._described(f"SELECT * FROM {parquet(reading.tables)}")) if reading.tables else {}

    def _of_tables(self, reading: Reading) -> str:
        return of_tables(reading.tables, self._kinds(reading))

    def _table(self, sql: str) -> Table:
        return Table(self, sql, self.columns_of(sql))

    def _suspects(self, events: Table, paths: Sequence[str]) -> dict[str, int]:
        """The files with lines outside of the contract, each with the number that is its `file`."""
        if not paths:
            return {}
        listed = ", ".join(f"({text(path)})" for path in paths)
        numbered = f"SELECT path, number_of(hash(path)) AS number FROM (VALUES {listed}) t(path)"
        suspects = f"SELECT file FROM ({events.sql}) WHERE {quoted(CORRUPT)} = '{SUSPECT}'"
        rows = self.rows_of(f"SELECT path, number FROM ({numbered}) WHERE number IN ({suspects})")
        return {row["path"]: row["number"] for row in rows}

    def write_lines(self, files: Sequence[str], folder: Path) -> None:
        lines, names = self.lines_stored(files, _with_numbers, _with_numbers, _AS_LINES)
        kept = lines.join(names, on="file", how="inner").drop("file").withColumnRenamed("name", "file")
        folder.mkdir(parents=True, exist_ok=True)
        self._copy(kept, folder / f"{uuid.uuid4()}.parquet")

    def write_sorted(self, file: str, target: Path) -> bool:
        """Write all lines of a file as a table to keep: small, and quick to read for one broker or a span of time.

        False if no line is one of a heartbeat log: nothing is written.
        """
        lines, _ = self.lines_stored([file], _with_numbers, _with_numbers, _AS_LINES)
        kept: Any = lines.drop("file")
        numbers = [quoted(name) for name, kind in LINE.items() if kind == "double"]
        same = " AND ".join(f"bool_and(TRY_CAST({name} AS {_EXACT}) IS NOT DISTINCT FROM {name})" for name in numbers)
        options = []
        # an empty file is one of a log
        is_log = "coalesce(bool_or(mono_ms IS NOT NULL), true)"
        (found,) = self.rows_of(f"SELECT {is_log} AS is_log, {same} AS is_same FROM ({kept.sql})")
        if not found["is_log"]:
            return False
        if found["is_same"]:
            exact = ", ".join(f"CAST({name} AS {_EXACT}) AS {name}" for name in numbers)
            kept = Table(self, f"SELECT * REPLACE ({exact}) FROM ({kept.sql})", kept.columns)
            options = [_SMALL]
        self._copy(
            kept.orderBy("cluster", "broker_name", "broker_id", "boot_id", "seq"), target, *options, codec="zstd"
        )
        return True

    def write_parquet(self, table: DataFrame, folder: Path, *, by: str) -> None:
        made: Any = table
        if made.isEmpty():
            # an empty file, since readers fail on a folder without a file
            folder.mkdir(parents=True)
            self._copy(made.drop(by), folder / "part-0.parquet")
        else:
            self._copy(made.orderBy(*made.columns), folder, f"PARTITION_BY ({quoted(by)})")

    def _copy(self, table: Table, target: Path, *options: str, codec: str = "snappy") -> None:
        format_options = ", ".join(("FORMAT parquet", f"COMPRESSION {codec}", *options))
        self._connection.execute(f"COPY ({table.sql}) TO {text(str(target))} ({format_options})")

    def write_json(self, table: DataFrame, folder: Path) -> None:
        folder.mkdir(parents=True)
        made: Any = table
        with (folder / "part-0.json").open("w", encoding="utf-8") as file:
            for row in made.collect():
                kept = {name: value for name, value in row.items() if value is not None}
                file.write(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n")


def _of(made: Callable[[Any], Any], lines: Table) -> Table:
    """The result of a transform on a `Table`, which transforms treat as a DataFrame."""
    table: Table = made(lines)
    return table


def _packed(made: Table, sparse: Sequence[str]) -> str:
    """A query of the same columns; the sparse ones are in `rest`, a list of one struct, or null if all are null."""
    if not sparse:
        return made.sql
    dense = ", ".join(quoted(name) for name in made.columns if name not in sparse)
    fields = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in sparse)
    is_any = " OR ".join(f"{quoted(name)} IS NOT NULL" for name in sparse)
    return f"SELECT {dense}, CASE WHEN {is_any} THEN [struct_pack({fields})] END AS rest FROM ({made.sql})"


def _with_numbers(lines: Any) -> Any:
    return lines.withColumn("file", columns.xxhash64("file"))
