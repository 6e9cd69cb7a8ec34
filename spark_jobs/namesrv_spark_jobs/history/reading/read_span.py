"""The report's tables for one span of time, read from the logs into an engine of their own."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.errors import NothingToReadError
from namesrv_spark_jobs.frames import Column, DataFrame, F, written_in
from namesrv_spark_jobs.history.hours import LogsError
from namesrv_spark_jobs.history.model import LEAST_EXPIRY_MS, Broker, Reading, Run
from namesrv_spark_jobs.history.spans import Span, written
from namesrv_spark_jobs.options import Options, WhatIf
from namesrv_spark_jobs.pipeline import Tables, tables_of
from namesrv_spark_jobs.transforms import replay
from namesrv_spark_jobs.transforms.extract import BAD_PART
from namesrv_spark_jobs.transforms.output_rows import whole_ms

# One row that an engine has returned.
Row = Mapping[str, Any]

# The shortest expiry with the finest scan evicts in every silence in which any other setting evicts: a silence without
# an eviction under this setting has none under any.
_ANY_SETTING: Final = WhatIf(expiry_ms=(LEAST_EXPIRY_MS,), scan_ms=(1,), poll_ms=(1,))
# DuckDB's memory limit for one reading; tables beyond it go to disk
MEMORY: Final = "1GB"
# intervals are rarely longer than so many usual intervals
_USUAL_PERIODS: Final = 1.25


@dataclass(frozen=True, kw_only=True)
class ReadSpan:
    """The tables of one span."""

    engine: EmbeddedEngine
    # the callbacks that close the engine and remove its folder
    resources: ExitStack
    about: Reading
    tables: Tables
    # see `replay.replayed_as_logged`
    as_logged: DataFrame
    # the few rows of `tables.silences` that are longer than `usual`
    long_silences: DataFrame
    # nearly all silences are at most this long, microseconds
    usual: int
    # start (monotonic) and duration of the reading
    began: float
    seconds: float

    @property
    def offsets(self) -> dict[int, int]:
        """Boot -> the milliseconds to add to its monotonic time for wall time."""
        return {row["boot"]: row["offset_ms"] for row in self.tables.boot_rows}


def read_span(folder: Path, files: list[str], span: Span) -> ReadSpan:
    """Read the lines of a span from these files; the engine keeps its tables below the folder. Raises LogsError."""
    began, read_ms = time.monotonic(), round(time.time() * 1000)
    options = Options(since_ms=span.from_ms, until_ms=span.to_ms, what_if=_ANY_SETTING)
    with ExitStack() as resources:
        tables_folder = resources.enter_context(TemporaryDirectory(dir=folder, ignore_cleanup_errors=True))
        engine = resources.enter_context(EmbeddedEngine(Path(tables_folder), memory=MEMORY))
        with written_in(engine):
            try:
                tables = tables_of(engine, files, options, lambda _: None)
            except NothingToReadError:
                raise LogsError(f"no line of a log {moments_of(span)} could be read") from None
            as_logged = engine.stored(replay.replayed_as_logged(tables.silences, tables.moments), "as_logged")
            middle = F.percentile("usual_interval", F.array(F.lit(0.5))).alias("middle")
            [[usual_interval]] = [row["middle"] for row in tables.periods.agg(middle).collect()]
            usual = round((usual_interval or 0) * _USUAL_PERIODS)
            long_silences = engine.stored(tables.silences.filter(is_longer(usual)), "long_silences")
        counts = tables.counts
        return ReadSpan(
            engine=engine,
            resources=resources.pop_all(),
            about=Reading(
                span=span, files=len(files), lines=sum(counts.values()), bad=counts.get(BAD_PART, 0), read_ms=read_ms
            ),
            tables=tables,
            as_logged=as_logged,
            long_silences=long_silences,
            usual=usual,
            began=began,
            seconds=time.monotonic() - began,
        )


def moments_of(span: Span) -> str:
    """A span in words, for error messages."""
    return f"from {written(span.from_ms)} to {written(span.to_ms)}"


def runs_of(read: ReadSpan) -> list[Run]:
    """The runs of servers in a span, in the order of its boots."""
    rows = read.tables.boot_rows
    stops = read.tables.moments.filter(F.col("event") == "stop").select("boot").collect()
    ended = {row["boot"] for row in stops}
    # a boot is in several parts if lines between them are missing
    ended |= {part["boot"] for part, following in pairwise(rows) if part["boot_id"] == following["boot_id"]}
    return [
        Run(
            nameserver=row["nameserver"] or "",
            boot_id=row["boot_id"],
            from_ms=whole_ms(row["first"] + row["offset_ms"] * 1000),
            to_ms=whole_ms(row["last"] + row["offset_ms"] * 1000),
            has_ended=row["boot"] in ended,
        )
        for row in rows
    ]


def broker_of(row: Row) -> Broker:
    """The broker that a row names; text that the log lacks is empty."""
    return Broker(
        cluster=row["cluster"] or "",
        broker_name=row["broker_name"] or "",
        broker_id=row["broker_id"],
        broker_addr=row["broker_addr"] or "",
    )


def place_of(key: tuple[Broker, str]) -> tuple[str, ...]:
    """The sort key of a broker on a server."""
    return str(key[0]), key[0].broker_addr, key[1]


def is_longer(expiry: int) -> Column:
    """A condition: a silence outlasts an expiry, or the broker's own expiry if that is shorter."""
    length = F.col("next_live") - F.col("live")
    return F.col("next_live").isNull() | (length > F.least("expiry", F.lit(expiry)))
