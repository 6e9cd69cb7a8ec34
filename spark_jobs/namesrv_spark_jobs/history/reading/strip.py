"""Strips: the heartbeats of a broker group in bins of time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, get_args

from namesrv_spark_jobs.frames import F, W
from namesrv_spark_jobs.history.model import STRIP_BINS, Broker, Strip, StripBin, StripKind, StripRequest, StripRow
from namesrv_spark_jobs.history.reading.read_span import ReadSpan, Row, broker_of, place_of
from namesrv_spark_jobs.history.spans import Span
from namesrv_spark_jobs.pipeline import live_heartbeats
from namesrv_spark_jobs.transforms.output_rows import whole_ms
from namesrv_spark_jobs.transforms.registration_periods import BROKER

# a silence longer than this many intervals is late, as in docs/heartbeat-log.md
_LATE_INTERVALS: Final = 1.5
# fewer heartbeats say little about the usual interval: a broker registers again soon after a server's start
_FEW_HEARTBEATS: Final = 3
_STRIP_KINDS: Final[tuple[StripKind, ...]] = get_args(StripKind)


def strip(read: ReadSpan, request: StripRequest) -> Strip:
    """For each bin of the span: the number of heartbeats, and the longest silence before one of them."""
    tables, span = read.tables, request.span
    of_name = (F.col("cluster") == request.cluster) & (F.col("broker_name") == request.broker_name)
    clocks = tables.boots.select("boot", "nameserver", "offset_ms")
    named = tables.brokers.filter(of_name)
    before = W.partitionBy("key").orderBy("mono", "seq")
    heartbeats = tables.heartbeats.select("key", "who", "boot", "mono", "seq", "expiry")
    # heartbeats of few brokers, so that the sort is short
    of_name_only = heartbeats.join(named.select("key").distinct(), on="key", how="left_semi")
    # a stop of the server is no silence of the broker
    live = live_heartbeats(read.engine, tables, of_name_only, tables.moments, tables.boot_rows)
    known = live.withColumn("interval", F.col("live") - F.lag("live").over(before)).join(clocks, on="boot", how="inner")
    since = F.col("mono") + F.col("offset_ms") * 1000 - span.from_ms * 1000
    placed = known.withColumn("bin", F.floor(since * STRIP_BINS / (span.length_ms * 1000)).cast("bigint"))
    within = placed.filter(F.col("bin").between(0, STRIP_BINS - 1)).join(named, on=["key", "who"], how="inner")
    binned = within.groupBy("key", "nameserver", *BROKER, "bin").agg(
        F.count("mono").alias("heartbeats"), F.max("interval").alias("longest"), F.max("expiry").alias("expiry")
    )
    periods = tables.periods.drop(*BROKER).join(named, on=["key", "who"], how="inner").drop("nameserver", "offset_ms")
    lived = periods.join(clocks, on="boot", how="inner").select(
        *("key", "nameserver", *BROKER, "usual_interval", "heartbeats", "last_ok", "evict_seq", "reason"),
        (F.col("removed") + F.col("offset_ms") * 1000).alias("ended"),
    )
    rows = read.engine.collected({"binned": binned, "lived": lived})
    return Strip(reading=read.about, span=span, rows=_strip_rows(span, rows["binned"], rows["lived"]))


def _strip_rows(span: Span, binned: Sequence[Row], lived: Sequence[Row]) -> list[StripRow]:
    usual = _usual_intervals(lived)
    strips: dict[tuple[Broker, str], dict[int, StripBin]] = defaultdict(dict)
    for row in binned:
        of = strips[broker_of(row), row["nameserver"] or ""]
        # An address without a registration period under this name has the interval of a period without heartbeats.
        of[row["bin"]] = _worse(of.get(row["bin"]), _strip_bin(row, usual.get(row["key"], (row["expiry"] or 0) // 4)))
    for row in lived:
        if row["evict_seq"] is None or row["reason"] == "unregistered" or whole_ms(row["ended"]) not in span:
            continue
        number = (whole_ms(row["ended"]) - span.from_ms) * STRIP_BINS // span.length_ms
        of = strips[broker_of(row), row["nameserver"] or ""]
        removed = StripBin(number=number, heartbeats=0, longest_ms=0, kind="removed", reason=row["reason"])
        of[number] = _worse(of.get(number), removed)
    return [
        StripRow(broker=key[0], nameserver=key[1], bins=[strips[key][number] for number in sorted(strips[key])])
        for key in sorted(strips, key=place_of)
    ]


def _usual_intervals(lived: Sequence[Row]) -> dict[int, int]:
    """The usual interval at an address in each boot of a server; after few heartbeats, its longest one in any boot.

    A registration period names the last broker at its address only: a slave that is elected master changes its id.
    """
    last: dict[int, Row] = {}
    longest: dict[str, int] = defaultdict(int)
    for row in sorted(lived, key=lambda row: row["last_ok"]):
        last[row["key"]] = row
        longest[row["broker_addr"]] = max(longest[row["broker_addr"]], row["usual_interval"])
    return {
        key: row["usual_interval"] if (row["heartbeats"] or 0) > _FEW_HEARTBEATS else longest[row["broker_addr"]]
        for key, row in last.items()
    }


def _strip_bin(row: Row, usual_interval: int) -> StripBin:
    longest = row["longest"] or 0
    kind: StripKind = "regular"
    if 3 * longest > 2 * (row["expiry"] or 0):
        kind = "overdue"
    elif longest > _LATE_INTERVALS * usual_interval:
        kind = "late"
    return StripBin(number=row["bin"], heartbeats=row["heartbeats"], longest_ms=whole_ms(longest), kind=kind)


def _worse(one: StripBin | None, other: StripBin) -> StripBin:
    """One bin with the heartbeats of both, and the worse kind."""
    if one is None:
        return other
    worse = max(one, other, key=lambda it: _STRIP_KINDS.index(it.kind))
    return StripBin(
        number=other.number,
        heartbeats=one.heartbeats + other.heartbeats,
        longest_ms=max(one.longest_ms, other.longest_ms),
        kind=worse.kind,
        reason=worse.reason,
    )
