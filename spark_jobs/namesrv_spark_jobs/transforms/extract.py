"""From lines to events and counts: each line counts once, as a heartbeat, another event, left out or bad."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from namesrv_spark_jobs.frames import Column, DataFrame, F, W
from namesrv_spark_jobs.log_files import is_url
from namesrv_spark_jobs.options import Options
from namesrv_spark_jobs.transforms.schema import (
    CHANGES,
    CORRUPT,
    EVENTS,
    HEARTBEATS,
    MOST_COUNT,
    REQUIRED,
    VERSION,
)

Row = Mapping[str, Any]

# the values of the column `part` of `events`: registrations and heartbeats, other events, unreadable lines, and events
# that the options exclude
HEARTBEAT_PART: Final = "heartbeat"
REST_PART: Final = "rest"
BAD_PART: Final = "bad"
LEFT_OUT_PART: Final = "left_out"

# 31 years: no monotonic time and no duration is longer
_FARTHEST_MS: Final = 1e12
# the year 2200: no wall clock time is later
_LATEST_WALL_MS: Final = 7_258_118_400_000
_SHOWN_CHARACTERS: Final = 500
# events with the settings of a boot, or a stop of the server; they are also read from before --since
_READ_BEFORE_SINCE: Final = ("start", "opened", "late")
# the names in `identity`: those that a server gives, and those that its peers choose
_OWN_NAMES: Final = ("nameserver", "boot_id", "broker_id")
_PEERS_NAMES: Final = ("cluster", "broker_name", "broker_addr")

# columns that `events` fills in for lines of the rest and for bad lines only: texts, whole numbers, and times
_TEXTS: Final = (
    *("nameserver", "boot_id", "cluster", "broker_name", "broker_addr", "agent_id", "reason", "topic"),
    *("brokers", "changes", "topics", "revisions", "counts", "client", "version", CORRUPT),
)
_WHOLE: Final = ("v", "broker_id", "scan", "revision", "count")
_TIMES: Final = ("silent", "late", "scan_interval", "broker_expiry")
# columns of `events` that are null in nearly all lines
SPARSE: Final = ("problem", *_TEXTS, *_WHOLE, *_TIMES)

# columns of `events` with a different value in nearly every line
DISTINCT: Final = ("seq", "ts_ms", "mono")

# The separator of the names in `identity`, and its substitute where a peer's name contains it.
_BETWEEN: Final = "\x1f"
_SUBSTITUTE: Final = "\N{SYMBOL FOR UNIT SEPARATOR}"
# the mark of a missing name
_NOTHING: Final = "\x00"
# two to the power of this is the number of `seq` values in a bucket: the 64 bits of a long
_BITS: Final = 6
# the base name of a path, with the folders of its day and hour
_SHORT_NAME: Final = re.compile(r"(?:[^/]+=[^/]*/)*[^/]+$")
# the counts of each file
_NUMBERS: Final = (
    *("lines", "bad", "duplicates", "newer_version", "unknown_events", "left_out", "dropped_by_writers", "clock_steps"),
)


def file_names(files: DataFrame) -> DataFrame:
    """The `name` of each `file` number. Lines have the number, because a text in each line costs too much."""
    return files.select(_number_of("file").alias("file"), "name")


def _number_of(name: str) -> Column:
    return F.xxhash64(name)


def events(read: DataFrame, options: Options) -> DataFrame:
    """Lines with their `part`, times in whole microseconds, and hashes in place of names.

    `file`, `boot`, `key` (a broker's address on a boot), `who` (a broker's name and id) and `agent` are hashes, since
    shuffling and comparing twenty million texts takes most of the time. Nearly all lines are heartbeats: of these only
    numbers are stored, and the texts `part`, `event` and `identity`, which are the same in thousands of lines.
    """
    # the first condition: bad lines are shown even when the options exclude them
    part = F.when(F.col("problem").isNotNull(), BAD_PART).when(~_is_wanted(options), LEFT_OUT_PART)
    part = part.when(F.col("event").isin(*HEARTBEATS), HEARTBEAT_PART).otherwise(REST_PART)
    read = read.withColumn("problem", _problem()).withColumn("part", part)
    is_looked_at = F.col("part").isin(REST_PART, BAD_PART)
    return read.select(
        "part",
        "problem",
        _number_of("file").alias("file"),
        (F.col("v") > VERSION).alias("is_newer"),
        "seq",
        "ts_ms",
        _microseconds("mono_ms").alias("mono"),
        "event",
        _identity(),
        F.xxhash64("boot_id").alias("boot"),
        F.xxhash64("boot_id", F.lit(1), "cluster", F.lit(2), "broker_addr").alias("key"),
        F.xxhash64("broker_name", F.lit(1), "broker_id").alias("who"),
        F.when(F.col("agent_id").isNotNull(), F.xxhash64("agent_id")).alias("agent"),
        _microseconds("expiry_ms").alias("expiry"),
        (F.col("silent_ms") > 0).alias("was_registered"),
        *(F.when(is_looked_at, F.col(name)).alias(name) for name in (*_TEXTS, *_WHOLE)),
        *(F.when(is_looked_at, _microseconds(f"{name}_ms")).alias(name) for name in _TIMES),
    )


def _microseconds(name: str) -> Column:
    """A time of the log (milliseconds with three decimals) in whole microseconds; null when it is out of range."""
    return F.when(F.col(name).between(-_FARTHEST_MS, _FARTHEST_MS), F.rint(F.col(name) * 1000).cast("long"))


def _problem() -> Column:
    """The reason why a line is bad; null for a good line."""
    problems = F.when(F.col(CORRUPT).isNotNull(), "torn, not JSON, or a field of the wrong type")
    for name in REQUIRED:
        problems = problems.when(F.col(name).isNull(), f"no {name}")
    problems = problems.when(_microseconds("mono_ms").isNull(), "mono_ms is not a time")
    problems = problems.when(~F.col("ts_ms").between(0, _LATEST_WALL_MS), "ts_ms is not a time")
    return problems.when(~F.col("count").between(0, MOST_COUNT), "count is out of range")


def _is_wanted(options: Options) -> Column:
    """True for an event that the options select."""
    is_before = (F.col("event").isin(*_READ_BEFORE_SINCE)) & _is_before_until(options)
    wanted = is_before | is_within(options)
    if options.nameservers:
        wanted &= F.coalesce(F.col("nameserver").isin(*options.nameservers), F.expr("false"))
    # a line without a cluster or a topic concerns all clusters or topics
    if options.clusters:
        wanted &= F.col("cluster").isNull() | F.col("cluster").isin(*options.clusters)
    if options.topics:
        named = F.array(*(F.lit(topic) for topic in options.topics))
        # null when a line names no topic
        named_topics = F.when(F.col("topic").isNotNull(), F.array("topic"))
        named_topics = named_topics.when(
            F.col("changes").isNotNull(),
            F.flatten(F.transform(F.from_json("changes", CHANGES), lambda change: change["topics"])),
        )
        named_topics = named_topics.when(F.col("revisions").isNotNull(), F.from_json("topics", "array<string>"))
        wanted &= named_topics.isNull() | F.coalesce(F.arrays_overlap(named_topics, named), F.expr("false"))
    return wanted


def is_within(options: Options) -> Column:
    """True for an event between --since and --until."""
    if options.since_ms is None:
        return _is_before_until(options)
    return (F.col("ts_ms") >= options.since_ms) & _is_before_until(options)


def _is_before_until(options: Options) -> Column:
    return F.expr("true") if options.until_ms is None else F.col("ts_ms") < options.until_ms


def bad_lines(bad: DataFrame, names: DataFrame, options: Options) -> DataFrame:
    """The bad lines for the report: their text, or the JSON of their known fields when a required one is missing."""
    fields = ("v", "seq", "ts_ms", "nameserver", "boot_id", "event")
    text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*fields)))
    shown = F.lit(None).cast("string") if options.redact else F.substring(text, 1, _SHOWN_CHARACTERS)
    known = bad.join(F.broadcast(names), on="file", how="left")
    return known.select(F.col("name").alias("file"), F.col("problem").alias("reason"), shown.alias("line"))


def _identity() -> Column:
    """The names of a line as one text, the column `identity`."""
    own = (F.col(name).cast("string") for name in _OWN_NAMES)
    # only names that may contain the separator, since this is done for each heartbeat
    peers = (F.replace(F.col(name), F.lit(_BETWEEN), F.lit(_SUBSTITUTE)) for name in _PEERS_NAMES)
    return F.concat_ws(_BETWEEN, *(F.coalesce(text, F.lit(_NOTHING)) for text in (*own, *peers))).alias("identity")


def _identity_columns() -> list[Column]:
    """The names that are in the column `identity`."""
    names = (*_OWN_NAMES, *_PEERS_NAMES)
    texts = (F.nullif(F.get(F.split("identity", _BETWEEN), F.lit(at)), F.lit(_NOTHING)) for at in range(len(names)))
    kinds = ("long" if name == "broker_id" else "string" for name in names)
    return [text.cast(kind).alias(name) for text, kind, name in zip(texts, kinds, names, strict=True)]


def suspects(events: DataFrame) -> DataFrame:
    """The buckets (`boot`, `bucket`) that contain some `seq` more than once: exact, and found without a sort.

    Each `seq` is one bit of its bucket. A bucket with fewer bits than lines contains a duplicate.
    """
    bit = F.expr("shiftleft(cast(1 as bigint), cast(seq & 63 as int))")
    buckets = _bucketed(events.select("boot", "seq")).groupBy("boot", "bucket")
    counted = buckets.agg(F.bit_or(bit).alias("bits"), F.count(F.lit(1)).alias("lines"))
    return counted.filter(F.bit_count("bits") < F.col("lines")).select("boot", "bucket")


def _bucketed(events: DataFrame) -> DataFrame:
    return events.withColumn("bucket", F.shiftright("seq", _BITS))


def numbered(events: DataFrame, suspected: DataFrame, files: DataFrame) -> DataFrame:
    """Events with `copy`: 1 for the line that is kept, 2 and more for its duplicates.

    Only suspected buckets are sorted. `files` has the names of the files: of equal lines, the first file's is kept.
    """
    bucketed = _bucketed(events)
    keys = ["boot", "bucket"]
    clear = bucketed.join(F.broadcast(suspected), on=keys, how="left_anti").withColumn("copy", F.lit(1))
    order = W.partitionBy("boot", "seq").orderBy("mono", "ts_ms", "event", "name", F.xxhash64(*events.columns))
    unclear = bucketed.join(F.broadcast(suspected), on=keys, how="left_semi")
    named = unclear.join(F.broadcast(files), on="file", how="left")
    return clear.unionByName(named.withColumn("copy", F.row_number().over(order)).drop("name")).drop("bucket")


def tally(events: DataFrame, files: DataFrame, options: Options) -> DataFrame:
    """Counts of lines by file, boot, event and broker, with the `first` and `last` moment of each group.

    Lines from before --since are counted, but have no moment, since they lie outside of the selected time.
    `files` has the names of the files.
    """
    columns = ("file", "event", "boot", "key", "who", "identity", "is_newer", "part")
    moment = F.when(is_within(options), F.col("mono"))
    counted = events.groupBy(*columns, (F.col("copy") > 1).alias("is_copy")).agg(
        F.count(F.lit(1)).alias("lines"),
        F.min(moment).alias("first"),
        F.max(moment).alias("last"),
        F.sum(F.when(F.col("event") == "dropped", F.col("count")).otherwise(0)).alias("dropped"),
    )
    named = counted.join(F.broadcast(files), on="file", how="left").withColumn("file", F.col("name"))
    return named.select("*", *_identity_columns()).drop("identity", "name")


def brokers(tallied: DataFrame) -> DataFrame:
    """The broker (cluster, address, name, id) of each pair of `key` and `who`."""
    columns = ("key", "who", "cluster", "broker_addr", "broker_name", "broker_id")
    return tallied.filter(F.col("broker_addr").isNotNull()).select(*columns).distinct()


def by_file(tallied: DataFrame) -> DataFrame:
    """One row for each file that has lines, with its counts but for clock steps."""
    part = F.col("part")
    is_event = ~part.isin(BAD_PART, LEFT_OUT_PART)
    taken = is_event & ~F.col("is_copy")
    conditions = {
        "lines": F.expr("true"),
        "bad": part == BAD_PART,
        "duplicates": is_event & F.col("is_copy"),
        "newer_version": taken & F.col("is_newer"),
        "unknown_events": taken & ~F.col("event").isin(*EVENTS),
        "left_out": part == LEFT_OUT_PART,
    }
    sums = [F.sum(F.when(where, F.col("lines")).otherwise(0)).alias(name) for name, where in conditions.items()]
    dropped = F.sum(F.when(taken, F.col("dropped")).otherwise(0)).alias("dropped_by_writers")
    return tallied.groupBy("file").agg(*sums, dropped)


def by_event(tallied: DataFrame) -> DataFrame:
    """The number of lines of each known event, without duplicates."""
    known = F.col("event").isin(*EVENTS) & ~F.col("is_copy") & ~F.col("part").isin(BAD_PART, LEFT_OUT_PART)
    return tallied.filter(known).groupBy("event").agg(F.sum("lines").alias("lines"))


def per_file(files: Sequence[str], rows: Iterable[Row], truncated: Collection[str]) -> list[dict[str, Any]]:
    """The counts of every input file, sorted by name; a file without lines has zeros.

    Each of `rows` has a `file`, as Spark names it, and some of the counts.
    """
    counts: dict[str, Counter[str]] = {file: Counter() for file in files}
    for row in rows:
        counts[_input_of(row["file"], files)].update({name: row[name] for name in _NUMBERS if name in row})
    return [
        {"file": name, "truncated": file in truncated, **{number: counts[file][number] for number in _NUMBERS}}
        for name, file in sorted((_short_name(file), file) for file in files)
    ]


def _short_name(path: str) -> str:
    """The base name of a file, with the folders of its day and hour."""
    plain = unquote(path)
    match = _SHORT_NAME.search(plain.rstrip("/"))
    return match[0] if match else plain


def _input_of(path: str, files: Sequence[str]) -> str:
    """The input file for a URL as Spark reports it; an input that is a table is a folder of such files."""
    plain = path if is_url(path) else unquote(urlsplit(path).path)
    known = {file if is_url(file) else file.removeprefix("file://").rstrip("/"): file for file in files}
    return next((file for name, file in known.items() if f"{plain}/".startswith(f"{name}/")), files[0])


def summed(files: Iterable[Row]) -> dict[str, int]:
    """The sums of the counts over all files."""
    rows = list(files)
    return {name: sum(row[name] for row in rows) for name in _NUMBERS}
