"""Boots of servers: the settings, the first and last moment, and the clock of each.

`mono` is the monotonic time of a line. Liveness time (`live`) is `mono` without the delays of the server, so that a
broker does not count as silent while the server itself was stopped.

Where lines of a boot are missing (a file was lost, or the server dropped lines), its log ends, and what follows counts
as another boot.
"""

from typing import Final

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms.extract import is_within
from namesrv_spark_jobs.transforms.schema import ANCHORS, CLIENT_EVENTS, HEARTBEATS

# events, besides heartbeats, that need a liveness time
TIMED: Final = ("start", "opened", "dropped", "scan", "late", "evict", "fenced", "stop")
_SETTINGS: Final = ("scan_interval", "broker_expiry", "version")
# two to the power of this is the number of `seq` values in a slice
_SLICE_BITS: Final = 12
# half a second: a clock does not drift that far between two neighbouring anchors, so a larger difference is a step
_STEP: Final = 500_000


def resumed(events: DataFrame, once: DataFrame, steps: DataFrame) -> DataFrame:
    """The lines (`boot`, `seq`) of servers before which lines of the boot are missing.

    Each is a `dropped` line, an `opened` line that does not follow the last line of the previous file, or one of the
    clock `steps` at which the selected time begins or ends in the middle of a boot. `events` are all readable lines:
    those that the options exclude otherwise are not missing. `once` are the selected ones without duplicates.
    """
    opened, dropped = (once.filter(F.col("event") == event).select("boot", "seq") for event in ("opened", "dropped"))
    before = F.broadcast(opened.select("boot", (F.col("seq") - 1).alias("seq")))
    found = events.join(before, on=["boot", "seq"], how="left_semi").select("boot", (F.col("seq") + 1).alias("seq"))
    unconnected = opened.join(F.broadcast(found), on=["boot", "seq"], how="left_anti")
    following = unconnected.unionByName(dropped.join(client_boots(once), on="boot", how="left_anti"))
    following = following.unionByName(steps.filter("leaves").select("boot", "seq")).distinct()
    begins = events.groupBy("boot").agg(F.min("seq").alias("begin"))
    # a log that begins with such a line lacks no lines between others
    return following.join(begins, on="boot", how="inner").filter(F.col("seq") > F.col("begin")).select("boot", "seq")


def split(events: DataFrame, resumed: DataFrame) -> DataFrame:
    """Events with a `boot` and `key` of their own for all lines from one `resumed` line of a boot to the next.

    A server with a slow disk may drop lines a thousand times an hour, so that each line is compared only with the
    `resumed` lines of its own slice of numbers, and with the last one before this slice.
    """
    slice_of = F.shiftright("seq", _SLICE_BITS).alias("slice")
    cut = F.broadcast(resumed.select("boot").distinct())
    slices = events.join(cut, on="boot", how="left_semi").select("boot", slice_of).distinct()
    begins = slices.withColumn("begin", F.col("slice") * (1 << _SLICE_BITS))
    edges = begins.unionByName(
        resumed.select("boot", slice_of, F.col("seq").alias("begin"), F.col("seq").alias("from_seq")),
        allowMissingColumns=True,
    )
    order = W.partitionBy("boot").orderBy("begin", "from_seq")
    following = W.partitionBy("boot", "slice").orderBy("begin", "from_seq")
    parts = edges.select(
        F.col("boot").alias("part_boot"),
        F.col("slice").alias("part_slice"),
        "begin",
        F.lead("begin").over(following).alias("end"),
        F.last("from_seq", ignorenulls=True)
        .over(order.rowsBetween(W.unboundedPreceding, W.currentRow))
        .alias("from_seq"),
    )
    here = (F.col("boot") == F.col("part_boot")) & (F.shiftright("seq", _SLICE_BITS) == F.col("part_slice"))
    here &= (F.col("seq") >= F.col("begin")) & (F.col("end").isNull() | (F.col("seq") < F.col("end")))
    own = {
        name: F.when(F.col("from_seq").isNull(), F.col(name)).otherwise(F.xxhash64(name, F.lit(1), "from_seq"))
        for name in ("boot", "key")
    }
    return events.join(F.broadcast(parts), on=here, how="left").withColumns(own).select(*events.columns)


def timed(rest: DataFrame) -> DataFrame:
    """The events of `TIMED` with `live`: their `mono` less the sum of all `late` of their boot up to them.

    In a log that begins later, the delays before its first line are missing from the sum. They move all `live` of the
    boot by the same amount, and only differences within a boot are used.
    """
    so_far = W.partitionBy("boot").orderBy("mono", "seq").rowsBetween(W.unboundedPreceding, W.currentRow)
    late = F.coalesce(F.sum(_late()).over(so_far), F.lit(0))
    return rest.filter(F.col("event").isin(*TIMED)).withColumn("live", F.col("mono") - late)


def _late() -> Column:
    return F.when(F.col("event") == "late", F.col("late")).otherwise(0)


def late_spans(moments: DataFrame, extents: DataFrame, width: int) -> DataFrame:
    """The spans from one `late` line of a boot to the next, with one row for each slice of `width` that a span touches.

    A heartbeat finds its span by (`boot`, `slice`). `deducted` is subtracted from the heartbeat's time, and the result
    is at most `latest`. `extents` has the first and last moment of each boot.
    """
    order = W.partitionBy("boot").orderBy("mono", "seq")
    late = moments.filter(F.col("event") == "late").select("boot", "mono", "seq", "live")
    # The time before the first `late` line, which may be before --since, is a span, too. Seq -1 sorts it before every
    # line.
    begin = late.groupBy("boot").agg(F.min("mono").alias("mono")).join(extents, on="boot", how="inner")
    began = F.least("mono", "first")
    edge = begin.select("boot", began.alias("mono"), F.lit(-1).alias("seq"), began.alias("live"))
    following = {"mono": "to_mono", "seq": "to_seq", "live": "latest"}
    spans = edge.unionByName(late).join(F.broadcast(extents), on="boot", how="inner")
    known = spans.select(
        "boot",
        F.col("mono").alias("from_mono"),
        F.col("seq").alias("from_seq"),
        *(F.lead(name).over(order).alias(to) for name, to in following.items()),
        (F.col("mono") - F.col("live")).alias("deducted"),
        "first",
        F.coalesce(F.lead("mono").over(order), F.greatest("last", "mono")).alias("until"),
    )
    touched = F.sequence(F.floor(F.greatest("from_mono", "first") / width), F.floor(F.col("until") / width))
    during = known.filter(F.col("until") >= F.col("first"))
    return during.withColumn("slice", F.explode(touched)).drop("first", "until")


def live_heartbeats(heartbeats: DataFrame, spans: DataFrame, width: int) -> DataFrame:
    """Heartbeats with `live`.

    A heartbeat that was logged before the `late` line which reports its delay counts as received at that line.
    """
    after = F.col("mono") > F.col("from_mono")
    after |= (F.col("mono") == F.col("from_mono")) & (F.col("seq") > F.col("from_seq"))
    before = F.col("to_mono").isNull() | (F.col("mono") < F.col("to_mono"))
    before |= (F.col("mono") == F.col("to_mono")) & (F.col("seq") < F.col("to_seq"))
    span = F.broadcast(spans.withColumnRenamed("boot", "span_boot"))
    here = (F.col("boot") == F.col("span_boot")) & (F.floor(F.col("mono") / width) == F.col("slice"))
    same = here & after & before
    put_back = F.col("mono") - F.coalesce("deducted", F.lit(0))
    # least() ignores a null `latest`
    return heartbeats.join(span, on=same, how="left").withColumn("live", F.least(put_back, F.col("latest")))


def clocks(anchored: DataFrame) -> DataFrame:
    """Per boot, `offset_ms`: the milliseconds to add to its monotonic time for wall time.

    The offset is a median, which a step of the wall clock does not move.
    """
    difference = F.expr("percentile_disc(0.5) within group (order by ts_ms * 1000 - mono)")
    return anchored.groupBy("boot").agg(F.floor(difference / 1000 + F.lit(0.5)).cast("long").alias("offset_ms"))


def clock_steps(events: DataFrame, once: DataFrame, files: DataFrame, options: Options) -> DataFrame:
    """The `boot`, `seq` and `file` of each anchor of a server before which the wall clock was set.

    `leaves` is true if --since or --until leave out the lines on one side of the step. Of a step into the selected
    time, `seq` is the number after the previous anchor: the selected lines before the anchor follow the step, too.
    `events` and `once` are those of `resumed`; steps among lines that are left out do not count. `files` has the names
    of the files. Where lines are left out, `events` has an anchor once for each file with it: the step counts for the
    first file by name.
    """
    order = W.partitionBy("boot").orderBy("seq", "mono", "ts_ms", "name")
    difference, is_in_time = F.col("ts_ms") * 1000 - F.col("mono"), is_within(options)
    anchors = events.filter(F.col("event").isin(*ANCHORS)).join(F.broadcast(files), on="file", how="left")
    # of the servers in --nameserver
    wanted = anchors.join(F.broadcast(once.select("boot").distinct()), on="boot", how="left_semi")
    known = wanted.join(F.broadcast(client_boots(once)), on="boot", how="left_anti").select(
        *("boot", "seq", "file"),
        F.lag("seq").over(order).alias("previous"),
        F.abs(difference - F.lag(difference).over(order)).alias("moved"),
        is_in_time.alias("is_in_time"),
        F.lag(is_in_time).over(order).alias("was_in_time"),
    )
    leaves = F.col("is_in_time") != F.col("was_in_time")
    seq = F.when(leaves & F.col("is_in_time"), F.col("previous") + 1).otherwise(F.col("seq"))
    steps = known.filter((F.col("moved") > _STEP) & (F.col("is_in_time") | F.col("was_in_time")))
    return steps.select("boot", seq.alias("seq"), "file", leaves.alias("leaves"))


def client_boots(tallied: DataFrame) -> DataFrame:
    """The boots of clients: those with a line that only clients write."""
    return tallied.filter(F.col("event").isin(*CLIENT_EVENTS)).select("boot").distinct()


def extents(tallied: DataFrame) -> DataFrame:
    """The `first` and `last` moment of each boot."""
    return tallied.groupBy("boot").agg(F.min("first").alias("first"), F.max("last").alias("last"))


def boots(tallied: DataFrame, moments: DataFrame, clock: DataFrame, options: Options) -> DataFrame:
    """One row for each boot of a server: names, clock offset, extent and settings.

    The settings are those of the whole boot, also where missing lines divide it. `start_live` and `end_live` are the
    liveness times between which a replay scans. `head_live` is that of the first line, without the delay that this line
    itself may report. All times but `offset_ms` are in microseconds.
    """
    of_servers = tallied.join(F.broadcast(client_boots(tallied)), on="boot", how="left_anti")
    # a boot without a moment ended before --since
    servers = of_servers.filter(F.col("first").isNotNull())
    seen = servers.groupBy("boot").agg(
        F.min("boot_id").alias("boot_id"),
        F.min("nameserver").alias("nameserver"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.min(F.struct("first", F.col("event").isin(*HEARTBEATS).alias("is_heartbeat"))).alias("head"),
    )
    line = F.struct("mono", "seq", "live", *_SETTINGS)
    lines = {event: F.min(F.when(F.col("event") == event, line)) for event in ("start", "opened", "scan", "late")}
    in_time = is_within(options)
    first_lines = moments.groupBy("boot").agg(
        *(lines[event].alias(f"{event}_line") for event in ("start", "scan")),
        F.min(F.when((F.col("event") == "late") & in_time, line)).alias("late_line"),
        F.min(F.when(in_time, F.struct("mono", "seq", "event"))).alias("first_line"),
        F.sum(_late()).alias("late"),
        F.sum(F.when(~in_time, _late())).alias("earlier_late"),
    )
    settings = moments.groupBy("boot_id").agg(F.coalesce(lines["start"], lines["opened"]).alias("settings"))
    known = seen.join(first_lines, on="boot", how="left").join(settings, on="boot_id", how="left")
    known = known.withColumn("head_live", F.col("first") - F.coalesce("earlier_late", F.lit(0)))
    return known.join(clock, on="boot", how="left").select(
        *("boot", "boot_id", "nameserver", "offset_ms", "first", "last", "head_live"),
        *(F.col("settings").getField(name).alias(name) for name in _SETTINGS),
        # the scans of a replay begin at `start_live`, and end with the last line of the boot
        F.coalesce(F.col("start_line.live"), F.col("scan_line.live"), _first_scan_live()).alias("start_live"),
        # true if the log, or the selected time, begins after the start of the server
        F.coalesce(F.col("start_line.mono") < F.col("first"), F.expr("true")).alias("is_cut"),
        (F.col("last") - F.coalesce("late", F.lit(0))).alias("end_live"),
    )


def _first_scan_live() -> Column:
    """The liveness time of a boot's first line, at which a replay's scans begin in a log without `start` and `scan`."""
    # A heartbeat counts at the latest at the `late` line that follows, as in `live_heartbeats`. Another line may have
    # the time of a `late` line, and stand before it.
    is_late = (F.col("first_line.mono") == F.col("first")) & (F.col("first_line.event") == "late")
    limited = F.col("head.is_heartbeat") | F.coalesce(is_late, F.expr("false"))
    return F.when(limited, F.least(F.col("head_live"), F.col("late_line.live"))).otherwise(F.col("head_live"))
