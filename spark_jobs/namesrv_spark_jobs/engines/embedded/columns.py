"""PySpark's columns, functions and windows in DuckDB's SQL, as far as transforms use them.

Where DuckDB's meaning differs (order of nulls, division, sums, rounding), the SQL made here has PySpark's meaning.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

_SCALAR: Final = {
    "long": "BIGINT",
    "bigint": "BIGINT",
    "int": "INTEGER",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
}
# texts that need no escapes in a literal
_PLAIN: Final = re.compile(r"[^\x00-\x1f]*")


def quoted(name: str) -> str:
    """A quoted identifier; the name may contain any characters."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal."""
    if _PLAIN.fullmatch(value):
        return "'" + value.replace("'", "''") + "'"
    return "(" + " || ".join(f"chr({ord(character)})" for character in value) + ")"


def sql_type(kind: str) -> str:
    """DuckDB's name of a type that is given in PySpark's notation."""
    kind = kind.strip()
    if kind.startswith("array<"):
        return f"{sql_type(kind[6:-1])}[]"
    if kind.startswith("struct<"):
        fields = (field.partition(":") for field in _fields(kind[7:-1]))
        return f"STRUCT({', '.join(f'{quoted(name)} {sql_type(of)}' for name, _, of in fields)})"
    return _SCALAR[kind]


def json_shape(kind: str) -> str:
    """The structure argument of DuckDB's `from_json` for a type that is given in PySpark's notation."""
    kind = kind.strip()
    if kind.startswith("array<"):
        return f"[{json_shape(kind[6:-1])}]"
    if kind.startswith("struct<"):
        fields = (field.partition(":") for field in _fields(kind[7:-1]))
        return "{" + ",".join(f'"{name}":{json_shape(of)}' for name, _, of in fields) + "}"
    return f'"{_SCALAR[kind]}"'


def _fields(inner: str) -> list[str]:
    """The fields of a struct type: the parts between the outermost commas."""
    fields, depth = [""], 0
    for character in inner:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            fields.append("")
        else:
            fields[-1] += character
    return fields


class Column:
    """An SQL expression, and its name in a table."""

    def __init__(self, sql: str, name: str | None = None, *, after: Callable[[str], str] | None = None) -> None:
        self.sql = sql
        self.name = name
        # the expression of an aggregate's value that a second query computes
        self.after = after

    def __repr__(self) -> str:
        return f"<Column {self.sql}>"

    def alias(self, name: str) -> "Column":
        return Column(self.sql, name, after=self.after)

    def cast(self, kind: str) -> "Column":
        return Column(f"CAST({self.sql} AS {sql_type(kind)})", self.name)

    def getField(self, name: str) -> "Column":
        return Column(f"struct_extract({self.sql}, {text(name)})", name)

    def __getitem__(self, key: str | int) -> "Column":
        return self.getField(key) if isinstance(key, str) else Column(f"list_extract({self.sql}, {key + 1})")

    def isNull(self) -> "Column":
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> "Column":
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: object) -> "Column":
        return Column(f"({self.sql} IN ({', '.join(lit(value).sql for value in values)}))")

    def between(self, low: object, high: object) -> "Column":
        return Column(f"({self.sql} BETWEEN {_operand(low)} AND {_operand(high)})")

    def over(self, window: "Window") -> "Column":
        return Column(f"{self.sql} OVER ({window.sql})")

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]  # an expression, as PySpark's
        return self._with("=", other)

    def __ne__(self, other: object) -> "Column":  # type: ignore[override]  # an expression, as PySpark's
        return self._with("<>", other)

    def __hash__(self) -> int:
        return hash(self.sql)

    def _with(self, operator: str, other: object) -> "Column":
        return Column(f"({self.sql} {operator} {_operand(other)})")

    def __lt__(self, other: object) -> "Column":
        return self._with("<", other)

    def __le__(self, other: object) -> "Column":
        return self._with("<=", other)

    def __gt__(self, other: object) -> "Column":
        return self._with(">", other)

    def __ge__(self, other: object) -> "Column":
        return self._with(">=", other)

    def __add__(self, other: object) -> "Column":
        return self._with("+", other)

    def __sub__(self, other: object) -> "Column":
        return self._with("-", other)

    def __mul__(self, other: object) -> "Column":
        return self._with("*", other)

    def __truediv__(self, other: object) -> "Column":
        # as in Spark, the quotient of whole numbers is a double, and division by zero gives null
        return Column(f"({self.sql} / nullif({_operand(other)}, 0))")

    def __mod__(self, other: object) -> "Column":
        return self._with("%", other)

    def __rmul__(self, other: object) -> "Column":
        return self._with("*", other)

    def __and__(self, other: object) -> "Column":
        return self._with("AND", other)

    def __or__(self, other: object) -> "Column":
        return self._with("OR", other)

    def __invert__(self) -> "Column":
        return Column(f"(NOT {self.sql})")


class Case(Column):
    """A CASE expression; `when` and `otherwise` add branches."""

    def __init__(self, branches: Sequence[str]) -> None:
        super().__init__(f"CASE {' '.join(branches)} END")
        self._branches = branches

    def when(self, condition: Column, value: object) -> "Case":
        return Case([*self._branches, f"WHEN {condition.sql} THEN {_operand(value)}"])

    def otherwise(self, value: object) -> Column:
        return Case([*self._branches, f"ELSE {_operand(value)}"])


class Window:
    """A window: partitions, their order, and the frame of rows."""

    unboundedPreceding: Final = "UNBOUNDED PRECEDING"  # noqa: N815 - PySpark's
    unboundedFollowing: Final = "UNBOUNDED FOLLOWING"  # noqa: N815 - PySpark's
    currentRow: Final = 0  # noqa: N815 - PySpark's

    def __init__(self, sql: str) -> None:
        self.sql = sql

    @staticmethod
    def partitionBy(*columns: "str | Column") -> "Window":
        return Window(f"PARTITION BY {', '.join(col(each).sql for each in columns)}" if columns else "")

    def orderBy(self, *columns: "str | Column") -> "Window":
        return Window(f"{self.sql} ORDER BY {', '.join(ordered(each) for each in columns)}")

    def rowsBetween(self, start: str | int, end: str | int) -> "Window":
        return Window(f"{self.sql} ROWS BETWEEN {_bound(start)} AND {_bound(end)}")


def _bound(at: str | int) -> str:
    if isinstance(at, str):
        return at
    if at == 0:
        return "CURRENT ROW"
    return f"{-at} PRECEDING" if at < 0 else f"{at} FOLLOWING"


class Ordered(Column):
    """An expression of ORDER BY with its direction."""


def ordered(column: "str | Column") -> str:
    """The SQL of a column in ORDER BY: ascending with nulls first, unless the column has a direction."""
    made = col(column)
    return made.sql if isinstance(made, Ordered) else f"{made.sql} ASC NULLS FIRST"


def _operand(value: object) -> str:
    return value.sql if isinstance(value, Column) else lit(value).sql


# the functions below have PySpark's names


def col(name: "str | Column") -> Column:
    if isinstance(name, Column):
        return name
    first, *fields = name.split(".")
    made = Column(quoted(first), first)
    for field in fields:
        made = made.getField(field)
    return made


def lit(value: object) -> Column:
    match value:
        case None:
            return Column("NULL")
        case bool():
            return Column("true" if value else "false")
        case int():
            return Column(f"CAST({value} AS BIGINT)")
        case float():
            return Column(f"CAST('{value!r}' AS DOUBLE)")
        case str():
            return Column(text(value))
    raise TypeError(f"{type(value).__name__} is not a literal")


def expr(sql: str) -> Column:
    return Column(f"({sql})")


def _called(function: str) -> Callable[..., Column]:
    """A function with the same meaning in DuckDB and PySpark; an argument of type str is the name of a column."""

    def made(*arguments: "str | Column") -> Column:
        return Column(f"{function}({', '.join(col(each).sql for each in arguments)})")

    return made


coalesce = _called("coalesce")
greatest = _called("greatest")
least = _called("least")
max = _called("max")
min = _called("min")
count = _called("count")
sum = _called("sum")
max_by = _called("max_by")
min_by = _called("min_by")
bit_or = _called("bit_or")
bit_count = _called("bit_count")
abs = _called("abs")
size = _called("len")
nullif = _called("nullif")
replace = _called("replace")
flatten = _called("flatten")
array_min = _called("list_min")
sort_array = _called("list_sort")
arrays_overlap = _called("list_has_any")
element_at = _called("list_extract")
row_number = _called("row_number")
lead = _called("lead")
lag = _called("lag")
explode = _called("unnest")
timestamp_millis = _called("epoch_ms")


def last(column: "str | Column", *, ignorenulls: bool = False) -> Column:
    return Column(f"last_value({col(column).sql}{' IGNORE NULLS' if ignorenulls else ''})")


def when(condition: Column, value: object) -> Case:
    return Case([]).when(condition, value)


def desc(column: "str | Column") -> Column:
    return Ordered(f"{col(column).sql} DESC NULLS LAST")


def floor(column: "str | Column") -> Column:
    return Column(f"CAST(floor({col(column).sql}) AS BIGINT)")


def rint(column: "str | Column") -> Column:
    return Column(f"round_even({col(column).sql}, 0)")


def pmod(dividend: Column, divisor: Column) -> Column:
    return Column(f"((({dividend.sql} % {divisor.sql}) + {divisor.sql}) % {divisor.sql})")


def struct(*columns: "str | Column") -> Column:
    fields = ((made.name, made.sql) for made in map(col, columns))
    return Column("struct_pack(" + ", ".join(f"{quoted(name or '')} := {sql}" for name, sql in fields) + ")")


def array(*columns: "str | Column") -> Column:
    return Column(f"[{', '.join(col(each).sql for each in columns)}]")


def array_contains(column: "str | Column", value: object) -> Column:
    return Column(f"list_contains({col(column).sql}, {_operand(value)})")


def arrays_zip(*columns: "str | Column") -> Column:
    lists = [col(each).sql for each in columns]
    missing = " OR ".join(f"{each} IS NULL" for each in lists)
    return Column(f"CASE WHEN {missing} THEN NULL ELSE list_zip({', '.join(lists)}) END")


def filter(column: "str | Column", wanted: Callable[[Column], Column]) -> Column:
    return Column(f"list_filter({col(column).sql}, lambda x: {wanted(Column('x')).sql})")


def transform(column: "str | Column", made: Callable[[Column], Column]) -> Column:
    return Column(f"list_transform({col(column).sql}, lambda x: {made(Column('x')).sql})")


def sequence(start: "str | Column", stop: "str | Column") -> Column:
    return Column(f"generate_series({col(start).sql}, {col(stop).sql})")


def get(column: "str | Column", index: Column) -> Column:
    return Column(f"list_extract({col(column).sql}, {index.sql} + 1)")


def split(column: "str | Column", separator: str) -> Column:
    return Column(f"string_split({col(column).sql}, {text(separator)})")


def concat_ws(separator: str, *columns: "str | Column") -> Column:
    return Column(f"concat_ws({text(separator)}, {', '.join(col(each).sql for each in columns)})")


def substring(column: "str | Column", start: int, length: int) -> Column:
    return Column(f"substring({col(column).sql}, {start}, {length})")


def sha2(column: "str | Column", _bits: int) -> Column:
    return Column(f"sha256({col(column).sql})")


def xxhash64(*columns: "str | Column") -> Column:
    """A hash of 64 bits; its values differ from those of Spark's xxhash64, which does not matter."""
    return Column(f"number_of(hash({', '.join(col(each).sql for each in columns)}))")


def shiftright(column: "str | Column", bits: int) -> Column:
    return Column(f"({col(column).sql} >> {bits})")


def date_format(column: Column, pattern: str) -> Column:
    known = {"yyyy-MM-dd": "%Y-%m-%d"}
    return Column(f"strftime({column.sql}, '{known[pattern]}')")


def from_json(column: "str | Column", kind: str) -> Column:
    made = col(column).sql
    return Column(f"CASE WHEN json_valid({made}) THEN from_json({made}, {text(json_shape(kind))}) END")


def to_json(column: "str | Column") -> Column:
    """JSON without null fields, as Spark's."""
    return Column(f"CAST(json_merge_patch('{{}}', to_json({col(column).sql})) AS VARCHAR)")


def collect_list(column: "str | Column") -> Column:
    made = col(column).sql
    return Column(f"list({made}) FILTER (WHERE {made} IS NOT NULL)")


def collect_set(column: "str | Column") -> Column:
    made = col(column).sql
    return Column(f"list(DISTINCT {made}) FILTER (WHERE {made} IS NOT NULL)")


def percentile(column: "str | Column", shares: Column) -> Column:
    """Exact percentiles, interpolated by Spark's formula: DuckDB's differs in the last digit."""
    made = col(column).sql
    return Column(
        f"list_sort(list({made}) FILTER (WHERE {made} IS NOT NULL))",
        after=lambda values: f"percentiles({values}, {shares.sql})",
    )


def broadcast(table: Any) -> Any:
    """The same table: DuckDB itself chooses which side of a join to keep in memory."""
    return table
