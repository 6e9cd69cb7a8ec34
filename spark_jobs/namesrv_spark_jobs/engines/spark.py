"""The Spark engine, on this machine or on a cluster, for logs of any size."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.engines.engine import Rows, Shape
from namesrv_spark_jobs.errors import MissingFileError, UsageError
from namesrv_spark_jobs.log_files import divided, is_url
from namesrv_spark_jobs.transforms.schema import CORRUPT, LINE

_T = TypeVar("_T")

# jobs that run at the same time: a small job is mostly planning, which keeps one core of the driver busy
_AT_ONCE: Final = 4
# rows of one task of the one big sort, so that they fit into the memory of a small executor
_ROWS_PER_TASK: Final = 400_000
# the Parquet codec that every reader knows
_CODEC: Final = "snappy"
# the struct column that holds the sparse columns
_PACKED: Final = "packed"
# Spark's error conditions for a path that does not exist, and for one that it cannot read as a table
_MISSING: Final = frozenset({"PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST"})
_NO_TABLE: Final = "UNABLE_TO_INFER_SCHEMA"
# Spark's error condition for files whose columns have different types; the exception from Java does not have it apart
_OTHER_TYPES: Final = "CANNOT_MERGE_SCHEMAS"
# characters that Spark would take as parts of a pattern
_PATTERN: Final = re.compile(r"([*?\[\]{}\\])")
_SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, kind in {**LINE, CORRUPT: "string"}.items())


class SparkEngine:
    """The engine on a Spark session, which the caller starts and stops.

    `staging` is a folder for intermediate tables: a path, or a URL that all machines of a cluster can write to.
    """

    functions: Any = F
    window: Any = Window

    def __init__(self, spark: SparkSession, staging: str) -> None:
        self.spark = spark
        self._staging = staging.rstrip("/")
        # days are computed in UTC on every machine
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    def __repr__(self) -> str:
        return f"<SparkEngine {self.describe()['master']}>"

    def describe(self) -> dict[str, str | None]:
        return {"name": "spark", "version": self.spark.version, "master": self.spark.conf.get("spark.master", None)}

    def lines_stored(
        self,
        files: Sequence[str],
        made: Callable[[DataFrame], DataFrame],
        named: Callable[[DataFrame], DataFrame],
        shape: Shape,
    ) -> tuple[DataFrame, DataFrame]:
        try:
            lines = made(self._lines(files))
            stored = self._written(_packed(lines, shape.sparse), "lines", by=shape.by, distinct=shape.distinct)
            return _unpacked(stored, lines.columns, shape.sparse), self.stored(named(self._file_names(files)), "names")
        except PySparkException as error:
            condition = _condition(error)
            if condition in _MISSING:
                raise MissingFileError(first_line(error)) from error
            if condition == _NO_TABLE:
                raise UsageError(first_line(error)) from error
            raise

    def _lines(self, files: Sequence[str]) -> DataFrame:
        tables, texts = _divided(files)
        if not tables:
            return self._of_text(texts)
        if not texts:
            return self._of_parquet(tables)
        return self._of_text(texts).unionByName(self._of_parquet(tables))

    def _of_text(self, paths: list[str]) -> DataFrame:
        """Lines of JSON files, read by Spark's JSON source: reading text and parsing it afterwards takes twice as long.

        Of a damaged file the readable part is read; `log_files.truncated` finds such files. The file comes from
        `input_file_name`, since `_metadata` takes half as long again as the parse, line by line.
        """
        reader = self.spark.read.schema(_SCHEMA).option("columnNameOfCorruptRecord", CORRUPT)
        reader = reader.option("mode", "PERMISSIVE").option("ignoreCorruptFiles", value=True).option("lineSep", "\n")
        reader = reader.option("allowSingleQuotes", value=False)
        return reader.json(paths).select("*", F.input_file_name().alias("file"))

    def _of_parquet(self, paths: list[str]) -> DataFrame:
        """The same columns from Parquet tables, cast from the types there; a missing column is null."""
        return reduce(lambda one, other: one.unionByName(other), map(_of_table, self._tables(paths)))

    def _tables(self, paths: list[str]) -> list[DataFrame]:
        """One table of all paths, or a table for each schema if Spark cannot merge them.

        In one schema a column may be missing that is in another, but it may not have another type. Compacted files have
        floating point numbers in place of decimal ones if a line has a number with more than three decimals.
        """
        reader = self.spark.read.option("mergeSchema", value=True).option("ignoreCorruptFiles", value=True)
        try:
            return [reader.parquet(*paths)]
        except (PySparkException, Py4JJavaError) as error:
            if _OTHER_TYPES not in str(error):
                raise
        paths_by_schema: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            paths_by_schema[reader.parquet(path).schema.json()].append(path)
        return [reader.parquet(*alike) for alike in paths_by_schema.values()]

    def _file_names(self, files: Sequence[str]) -> DataFrame:
        tables, texts = _divided(files)
        read_files = list(self._of_text(texts).inputFiles()) if texts else []
        # the names are one array literal: with Spark Connect, a DataFrame of local rows would need pandas
        listed = F.array(*(F.lit(name) for name in read_files)).cast("array<string>")
        names = self.spark.range(1).select(F.explode(listed).alias("name"))
        if tables:
            names = names.unionByName(self._of_parquet(tables).select(F.col("file").alias("name")).distinct())
        return names.select(F.col("name").alias("file"), "name")

    def stored(self, table: DataFrame, name: str, *, by: str | None = None) -> DataFrame:
        return self._written(table, name, by=by)

    def _written(self, table: DataFrame, name: str, *, by: str | None, distinct: Sequence[str] = ()) -> DataFrame:
        path = f"{self._staging}/{name}"
        # building dictionaries of distinct values took a quarter of the tasks' time
        no_dictionary = {f"parquet.enable.dictionary#{column}": "false" for column in distinct}
        writer = table.write.mode("overwrite").options(**no_dictionary)
        (writer if by is None else writer.partitionBy(by)).parquet(path)
        # the schema is given, since a table without rows has no file to read it from
        return self.spark.read.schema(table.schema).parquet(path)

    def all_stored(self, **tables: DataFrame) -> dict[str, DataFrame]:
        return _at_once({name: partial(self.stored, table, name) for name, table in tables.items()})

    def spread(self, table: DataFrame, key: str, rows: int) -> DataFrame:
        return table.repartition(max(1, math.ceil(rows / _ROWS_PER_TASK)), key)

    def collected(self, tables: Mapping[str, DataFrame]) -> dict[str, Rows]:
        rows_by_name = _at_once({name: table.collect for name, table in tables.items()})
        return {name: [row.asDict(recursive=True) for row in rows] for name, rows in rows_by_name.items()}

    def write_lines(self, files: Sequence[str], folder: Path) -> None:
        self._lines(files).write.mode("append").parquet(f"file://{folder}")

    def write_parquet(self, table: DataFrame, folder: Path, *, by: str) -> None:
        # Without a scheme a cluster would use its own file system. Spark does not decode percent escapes.
        parted = table.repartition(by).sortWithinPartitions(*table.columns)
        parted.write.option("compression", _CODEC).partitionBy(by).parquet(f"file://{folder}")
        if not any(folder.rglob("*.parquet")):
            # Without rows Spark writes no file, and readers fail on a folder without a file since it has no columns.
            empty = table.limit(0).coalesce(1)
            empty.write.option("compression", _CODEC).mode("overwrite").parquet(f"file://{folder}")

    def write_json(self, table: DataFrame, folder: Path) -> None:
        table.coalesce(1).write.json(f"file://{folder}")


def _divided(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """The Parquet tables and the JSON files, as paths for Spark."""
    tables, texts = divided(files)
    return [_literal(file) for file in tables], [_literal(file) for file in texts]


def _literal(path: str) -> str:
    """The path with the characters of patterns escaped."""
    return path if is_url(path) else _PATTERN.sub(r"\\\1", path)


def _packed(table: DataFrame, sparse: Sequence[str]) -> DataFrame:
    """The table with its sparse columns in one struct, which is null where all of them are, as in nearly all lines."""
    dense = (name for name in table.columns if name not in sparse)
    is_any = reduce(or_, (F.col(name).isNotNull() for name in sparse))
    return table.select(*dense, F.when(is_any, F.struct(*sparse)).alias(_PACKED))


def _unpacked(packed: DataFrame, columns: Sequence[str], sparse: Sequence[str]) -> DataFrame:
    """The columns of the table that `_packed` packed."""
    return packed.select(*(F.col(f"{_PACKED}.{name}" if name in sparse else name).alias(name) for name in columns))


def _of_table(table: DataFrame) -> DataFrame:
    """The columns of log lines, from a Parquet table."""
    kinds = dict(table.dtypes)
    columns = [_from_table(name, kind, kinds.get(name)) for name, kind in LINE.items()]
    # tables of --follow keep the bad lines, and the file of each line
    corrupt = F.col(CORRUPT) if CORRUPT in kinds else F.lit(None).cast("string").alias(CORRUPT)
    file = F.col("file") if "file" in kinds else F.col("_metadata.file_path").alias("file")
    return table.select(*columns, corrupt, file)


def _from_table(name: str, kind: str, stored_type: str | None) -> Column:
    if stored_type == kind:
        return F.col(name)
    if stored_type is None:
        return F.lit(None).cast(kind).alias(name)
    if kind == "string" and stored_type.startswith(("array", "struct", "map")):
        return F.to_json(name).alias(name)
    return F.expr(f"try_cast(`{name}` as {kind})").alias(name)


def _at_once(jobs: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
    """The results of small independent jobs, by their names."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: job.result() for name, job in started.items()}


def _condition(error: PySparkException) -> str | None:
    """The error condition; Spark 3 calls it the error class."""
    named = error.getCondition if hasattr(error, "getCondition") else error.getErrorClass
    return named()


def first_line(error: Exception) -> str:
    """The first line of Spark's message, without Java's stack trace."""
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
