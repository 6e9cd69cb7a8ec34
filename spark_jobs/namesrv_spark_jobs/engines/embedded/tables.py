"""PySpark's DataFrame in DuckDB's SQL, as far as transforms use it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from namesrv_spark_jobs.engines.embedded.columns import Column, col, ordered, quoted

_JOINS: Final = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "full_outer": "FULL JOIN",
    "cross": "CROSS JOIN",
    "left_semi": "SEMI JOIN",
    "left_anti": "ANTI JOIN",
}
_ONE_SIDED: Final = frozenset({"left_semi", "left_anti"})


class Row(dict[str, Any]):
    """A row of a collected table."""

    def asDict(self, *, recursive: bool = False) -> dict[str, Any]:  # noqa: ARG002 - PySpark's
        return dict(self)


class Database(Protocol):
    """The database in which tables are computed."""

    def columns_of(self, sql: str) -> list[str]:
        """The names of the columns of a query."""

    def rows_of(self, sql: str) -> list[Row]:
        """The rows of a query."""


class Table:
    """The counterpart of a DataFrame: a query, and the names of its columns."""

    def __init__(self, database: Database, sql: str, columns: Sequence[str]) -> None:
        self._database = database
        self.sql = sql
        self.columns = list(columns)

    def __repr__(self) -> str:
        return f"<Table {', '.join(self.columns)}>"

    def _made(self, sql: str, columns: Sequence[str] | None = None) -> "Table":
        return Table(self._database, sql, self.columns if columns is None else columns)

    def select(self, *columns: "str | Column") -> "Table":
        chosen = [made for each in columns for made in self._expanded(each)]
        return self._selected({name: made.sql for name, made in chosen})

    def _selected(self, chosen: Mapping[str, str]) -> "Table":
        shown = (sql if sql == quoted(name) else f"{sql} AS {quoted(name)}" for name, sql in chosen.items())
        return self._made(f"SELECT {', '.join(shown)} FROM ({self.sql})", list(chosen))

    def _expanded(self, column: "str | Column") -> list[tuple[str, Column]]:
        if isinstance(column, str) and column == "*":
            return [(name, col(name)) for name in self.columns]
        if isinstance(column, str) and column.endswith(".*"):
            outer = col(column.removesuffix(".*"))
            fields = self._database.columns_of(f"SELECT unnest({outer.sql}) FROM ({self.sql})")
            return [(name, outer.getField(name)) for name in fields]
        made = col(column)
        if made.name is None:
            raise ValueError(f"{made.sql} has no name")
        return [(made.name, made)]

    def withColumn(self, name: str, column: Column) -> "Table":
        return self.withColumns({name: column})

    def withColumns(self, columns: Mapping[str, Column]) -> "Table":
        known = {name: quoted(name) for name in self.columns}
        return self._selected({**known, **{name: column.sql for name, column in columns.items()}})

    def withColumnRenamed(self, old: str, new: str) -> "Table":
        return self.withColumnsRenamed({old: new})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> "Table":
        return self._selected({names.get(name, name): quoted(name) for name in self.columns})

    def drop(self, *names: str) -> "Table":
        return self._selected({name: quoted(name) for name in self.columns if name not in names})

    def filter(self, condition: "str | Column") -> "Table":
        return self._made(f"SELECT * FROM ({self.sql}) WHERE {col(condition).sql}")

    def distinct(self) -> "Table":
        return self._made(f"SELECT DISTINCT * FROM ({self.sql})")

    def limit(self, number: int) -> "Table":
        return self._made(f"{self.sql} LIMIT {number}")

    def orderBy(self, *columns: "str | Column") -> "Table":
        return self._made(f"SELECT * FROM ({self.sql}) ORDER BY {', '.join(ordered(each) for each in columns)}")

    def unionByName(self, other: "Table", *, allowMissingColumns: bool = False) -> "Table":
        added = [name for name in other.columns if name not in self.columns]
        if not allowMissingColumns and (added or len(other.columns) != len(self.columns)):
            raise ValueError(f"{self} and {other} have different columns")
        union = f"SELECT * FROM ({self.sql}) UNION ALL BY NAME SELECT * FROM ({other.sql})"
        return self._made(union, [*self.columns, *added])

    def join(self, other: "Table", on: "str | Sequence[str] | Column | None" = None, *, how: str) -> "Table":
        kind = _JOINS[how]
        if isinstance(on, Column):
            shown = self.columns if how in _ONE_SIDED else [*self.columns, *other.columns]
            return self._made(f"SELECT * FROM ({self.sql}) l {kind} ({other.sql}) r ON {on.sql}", shown)
        keys = [on] if isinstance(on, str) else list(on or ())
        mine = [name for name in self.columns if name not in keys]
        theirs = [] if how in _ONE_SIDED else [name for name in other.columns if name not in keys]
        sides = {name: f"l.{quoted(name)}" for name in (*keys, *mine)} | {name: f"r.{quoted(name)}" for name in theirs}
        if how == "full_outer":
            sides |= {name: f"coalesce(l.{quoted(name)}, r.{quoted(name)})" for name in keys}
        same = " AND ".join(f"l.{quoted(name)} = r.{quoted(name)}" for name in keys)
        shown_sql = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in sides.items())
        where = f" ON {same}" if keys else ""
        return self._made(f"SELECT {shown_sql} FROM ({self.sql}) l {kind} ({other.sql}) r{where}", list(sides))

    def groupBy(self, *columns: "str | Column") -> "Grouped":
        return Grouped(self, [made for each in columns for made in self._expanded(each)])

    def agg(self, *columns: Column) -> "Table":
        return Grouped(self, []).agg(*columns)

    def collect(self) -> list[Row]:
        """All rows."""
        return self._database.rows_of(self.sql)

    def isEmpty(self) -> bool:
        return not self._database.rows_of(f"{self.sql} LIMIT 1")


class Grouped:
    """The counterpart of GroupedData: a table, and the columns by which it is grouped."""

    def __init__(self, table: Table, keys: Sequence[tuple[str, Column]]) -> None:
        self._table = table
        self._keys = keys

    def agg(self, *columns: Column) -> Table:
        shown = {**{name: made.sql for name, made in self._keys}, **{each.name or "": each.sql for each in columns}}
        listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in shown.items())
        by = f" GROUP BY {', '.join(str(number + 1) for number in range(len(self._keys)))}" if self._keys else ""
        summed = self._table._made(f"SELECT {listed} FROM ({self._table.sql}){by}", list(shown))  # noqa: SLF001 - a part of it
        after = {each.name: each.after for each in columns if each.name is not None and each.after is not None}
        if not after:
            return summed
        return summed.withColumns({name: Column(made(quoted(name))) for name, made in after.items()})
