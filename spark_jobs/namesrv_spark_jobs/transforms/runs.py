"""Runs: the beats of a broker that come regularly, in one row of a compacted file.

A report takes such a row as it is, and so does not have to sort its beats, unless something makes a difference between
them: a setting that takes one of the gaps for a death, a server that was late, files whose lines overlap, or a limit
of time.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms.extract import (
    BEAT_PART,
    LEFT_OUT_PART,
    RUN_PART,
    is_in_time,
    microseconds,
    problem,
)
from namesrv_spark_jobs.transforms.schema import ANCHORS, BEATS, CORRUPT, LINE, RUN
from namesrv_spark_jobs.transforms.silences import PERIOD_GAPS, SHORTEST_GAP, bin_of, is_near_miss

# fewer are not worth a row with all that is in it
_LEAST_LINES: Final = 8
# a gap may be so many times as long as the one before it, and that one as long as it
_LONGER, _THAN = 5, 4
_OF_EACH: Final = ("v", "seq", "ts_ms", "mono_ms")
# nobody asks a beat for what it says about the silence before it
_UNUSED: Final = "silent_ms"
_BEAT: Final = ("mono", "seq", "ts_ms")
# what tells a run from all others
_PLACE: Final = ["boot", "seq", "file", "part"]


def compacted(marked: DataFrame) -> DataFrame:
    """The `marked` lines of one file with runs in place of what can be in one."""
    fields_of_line = (*LINE, CORRUPT)
    steady = marked.filter(F.col("is_steady"))
    parts = steady.groupBy("key", "run", (F.col("place") % PERIOD_GAPS).alias("slot"), "bin").agg(
        F.max("place").alias("place"), F.count(F.lit(1)).alias("rows"), F.max_by("gap", "place").alias("gap")
    )
    of_run = parts.groupBy("key", "run").agg(
        F.sort_array(F.collect_list(F.struct("place", "bin", "rows", "gap"))).alias("parts")
    )
    beats = F.sort_array(F.collect_list(F.struct(*_BEAT))).alias("beats")
    summed = steady.groupBy("key", "run").agg(
        F.count(F.lit(1)).alias("lines"),
        F.max("next_seq").alias("end_seq"),
        F.max("next_mono").alias("end_mono"),
        F.max("gap").alias("longest"),
        beats,
    )
    long = summed.filter(F.col("lines") >= _LEAST_LINES).join(of_run, on=["key", "run"], how="inner")
    heads = steady.filter(F.col("place") == 0).join(long, on=["key", "run"], how="inner")
    fields = ("v", "seq", "ts_ms", "mono", "lines", "end_seq", "end_mono", "longest")
    made = heads.withColumn(RUN, F.struct(*fields, "parts", "beats"))
    nulls = {name: F.lit(None) for name in (*_OF_EACH, _UNUSED)}
    rows = made.withColumns(nulls).select(*fields_of_line, RUN)
    short = marked.join(long.select("key", "run"), on=["key", "run"], how="left_anti").filter(F.col("is_steady"))
    single = marked.filter(~F.col("is_steady")).unionByName(short).select(*fields_of_line)
    return single.unionByName(rows, allowMissingColumns=True)


def marked(lines: DataFrame) -> DataFrame:
    """Lines (`schema.LINE`, `corrupt_line`) with whether they are beats in the midst of others like them.

    Those that follow each other have the same `run`, and count by `place`; `gap` is the one after each.
    """
    order = W.partitionBy("key").orderBy("is_other", "mono", "seq")
    is_beat = F.col("event").isin(*BEATS)
    is_other = problem().isNotNull() | ~F.coalesce(is_beat | (F.col("event") == "evict"), F.expr("false"))
    fields = (F.col(name) for name in LINE if name not in (*_OF_EACH, _UNUSED))
    keyed = lines.withColumns(
        {
            "mono": microseconds("mono_ms"),
            "key": F.xxhash64("boot_id", F.lit(1), "cluster", F.lit(2), "broker_addr"),
            "is_other": is_other,
            "alike": F.xxhash64("v", *fields),
        }
    ).withColumn("alike", F.when(~F.col("is_other") & is_beat, F.col("alike")))
    following = {name: F.lead(name).over(order) for name in ("mono", "seq", "alike")}
    known = keyed.withColumns(
        {
            **{f"next_{name}": column for name, column in following.items()},
            **{f"last_{name}": F.lag(name).over(order) for name in ("mono", "seq", "alike")},
        }
    )
    gap, before = F.col("next_mono") - F.col("mono"), F.col("mono") - F.col("last_mono")
    is_regular = (_THAN * gap <= _LONGER * before) & (_THAN * before <= _LONGER * gap)
    expiry = microseconds("expiry_ms")
    is_steady = (F.col("alike") == F.col("next_alike")) & (F.col("alike") == F.col("last_alike"))
    is_steady &= is_regular & (gap >= SHORTEST_GAP) & (expiry > 0) & ~is_near_miss(gap, expiry)
    is_steady &= (F.col("last_seq") < F.col("seq")) & (F.col("seq") < F.col("next_seq"))
    able = _able(keyed).withColumn("is_able", F.expr("true"))
    told = known.join(able, on=["boot_id", "nameserver"], how="left")
    told = told.withColumn("is_steady", F.coalesce(is_steady & F.col("is_able"), F.expr("false")))
    so_far = order.rowsBetween(W.unboundedPreceding, W.currentRow)
    others = F.sum(F.when(F.col("is_steady"), 0).otherwise(1)).over(so_far)
    found = told.withColumns({"run": others, "gap": gap, "bin": bin_of(gap, expiry)})
    place = W.partitionBy("key", "run", "is_steady").orderBy("mono", "seq")
    return found.withColumn("place", F.row_number().over(place) - 1)


def _able(keyed: DataFrame) -> DataFrame:
    """The boots whose clock is known without their beats, and of which no number is there twice."""
    known = problem().isNull()
    anchored = keyed.filter(known & F.col("event").isin(*ANCHORS)).select("boot_id", "nameserver").distinct()
    numbers = keyed.filter(known).groupBy("boot_id", "seq").agg(F.count(F.lit(1)).alias("lines"))
    twice = numbers.filter(F.col("lines") > 1).select("boot_id").distinct()
    return anchored.join(twice, on="boot_id", how="left_anti")


def to_be_taken_apart(events: DataFrame, options: Options) -> DataFrame:
    """The runs among `extract.events` that are not what they were in their file, when all files are put together."""
    found = events.filter(F.col("part") == RUN_PART)
    if options.since_ms is not None or options.until_ms is not None:
        return found
    extents = events.groupBy("boot", "file").agg(
        F.min("seq").alias("first"), F.max(F.coalesce(F.col(RUN)["end_seq"], F.col("seq"))).alias("last")
    )
    before = W.partitionBy("boot").orderBy("first", "file").rowsBetween(W.unboundedPreceding, -1)
    overlaps = extents.withColumn("overlaps", F.col("first") <= F.max("last").over(before))
    crossed = overlaps.filter(F.col("overlaps")).select("boot")
    # a beat may count as heard later than it was
    late = events.filter(F.col("event") == "late").select("boot")
    return found.join(F.broadcast(crossed.unionByName(late).distinct()), on="boot", how="left_semi")


def without(events: DataFrame, taken: DataFrame) -> DataFrame:
    """The events but for these runs."""
    return events.join(F.broadcast(taken.select(*_PLACE)), on=_PLACE, how="left_anti")


def apart(runs: DataFrame, options: Options) -> DataFrame:
    """The beats of runs, as they were lines."""
    each = runs.withColumn("beat", F.explode(F.col(RUN)["beats"]))
    fields: dict[str, Column] = {name: F.col("beat")[name] for name in _BEAT}
    single = each.withColumns({**fields, "lines": F.lit(1), RUN: F.lit(None)}).drop("beat")
    part = F.when(F.coalesce(is_in_time(options), F.expr("false")), BEAT_PART).otherwise(LEFT_OUT_PART)
    return single.withColumn("part", part)
