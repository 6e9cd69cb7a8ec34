"""Where do intermediate tables lie? Each is written once and read again, with only the columns that are needed."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")

# a small job is mostly planning, which keeps one core of the driver busy
_AT_ONCE: Final = 4


@dataclass(frozen=True)
class Staging:
    """A folder of tables that live as long as one analysis."""

    spark: SparkSession
    folder: str

    def stored(self, table: DataFrame, name: str, *, by: str | None = None) -> DataFrame:
        """The same table, computed now."""
        path = f"{self.folder.rstrip('/')}/{name}"
        writer = table.write.mode("overwrite")
        (writer if by is None else writer.partitionBy(by)).parquet(path)
        # a table without rows has no files, and so nothing that its schema could be read from
        return self.spark.read.schema(table.schema).parquet(path)


def at_once(jobs: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
    """The results of small jobs that do not need each other, by their names."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = {name: pool.submit(job) for name, job in jobs.items()}
        return {name: job.result() for name, job in started.items()}
