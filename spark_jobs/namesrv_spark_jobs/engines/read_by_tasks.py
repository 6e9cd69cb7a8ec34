"""Files that DuckDB reads in the tasks of a Spark job: in a third of the time that Spark takes to read them.

Executors need Python and the driver's version of DuckDB for it; this package comes with the job.
"""

import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from namesrv_spark_jobs.engines.engine import Shape
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.frames import F, written_in
from namesrv_spark_jobs.log_files import PARQUET_SUFFIX, is_url, json_bytes

Made = Callable[[DataFrame], DataFrame]

# about so much JSON to a task: no core waits long for another one at the end
_TASK_BYTES: Final = 100_000_000
# Spark divides larger files among tasks, which we do not
_MOST_BYTES: Final = 2_000_000_000
# what DuckDB may have beside the Java of an executor; the lines of one file are less
_MEMORY: Final = "512MB"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What each task does with its files."""

    # of all lines, see `Engine.lines_stored`; and of a table of the files
    made: Made
    named: Made
    shape: Shape
    # folders that all of a cluster can write to
    lines: str
    names: str
    # DuckDB's on the driver: the same name has to be the same number for everyone
    version: str | None


class Part(NamedTuple):
    """Some of a table."""

    columns: dict[str, str]
    files: list[str]


class Done(NamedTuple):
    """What a task has made: the columns of a table, as PySpark spells them, and the files that have its rows."""

    lines: Part
    names: Part


def read(session: SparkSession, files: Sequence[str], order: Order) -> list[Done] | None:
    """What the tasks have made; None when not all of them can read, and somebody else has to."""
    tasks = grouped(files)
    # a client of Spark Connect has no context
    if not tasks or is_remote():
        return None
    try:
        done = session.sparkContext.parallelize(tasks, len(tasks)).map(partial(_read, order)).collect()
    except (Py4JJavaError, PySparkException):
        # executors without Python, or with another one; a file that nobody can read is told by who reads it next
        return None
    found = [each for each in done if each is not None]
    return found if len(found) == len(tasks) else None


def grouped(files: Sequence[str]) -> list[list[str]]:
    """The files of each task; none when one of them is not for us."""
    if any(is_url(file) for file in files):
        return []
    sizes = {file: json_bytes(file) for file in files}
    if max(sizes.values()) > _MOST_BYTES:
        return []
    groups: list[list[str]] = []
    room = 0
    for file, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = _TASK_BYTES
        groups[-1].append(file)
        room -= size
    return groups


def _read(order: Order, files: list[str]) -> Done | None:
    try:
        import duckdb  # noqa: PLC0415  # executors may have no such package

        from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine  # noqa: PLC0415  # imports duckdb
    except ImportError:
        return None
    if duckdb.__version__ != order.version:
        return None
    # another attempt at the same task may write as well: what counts is what one says that it has written
    name = f"{uuid.uuid4().hex}{PARQUET_SUFFIX}"
    try:
        with (
            tempfile.TemporaryDirectory(prefix="namesrv-read-") as scratch,
            EmbeddedEngine(Path(scratch), memory=_MEMORY, threads=1) as engine,
            written_in(engine),
        ):
            lines, names = engine.lines_stored(files, order.made, order.named, order.shape)
            parts = [
                engine.write_for_others(part, Path(order.lines, f"{order.shape.by}={value}", name))
                for value, part in _parts(lines, order.shape).items()
            ]
            written = engine.write_for_others(names, Path(order.names, name))
            return Done(Part(engine.kinds_of(lines), parts), Part(engine.kinds_of(names), [written]))
    except (duckdb.Error, UsageError, OSError):
        # Spark finds it as well, and says what it is
        return None


def _parts(lines: DataFrame, shape: Shape) -> dict[str, DataFrame]:
    """The rows of each value, without the columns that have nothing."""
    values = [row[shape.by] for row in lines.select(shape.by).distinct().collect()]
    return {
        value: lines.filter(F.col(shape.by) == value).drop(shape.by, *(shape.sparse if value in shape.bare else ()))
        for value in values
    }
