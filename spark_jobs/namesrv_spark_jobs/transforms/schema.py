"""The schema of heartbeat log lines: the reading half of docs/heartbeat-log.md, versions 1 and 2."""

from typing import Final

from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

# the newest that is read; version 2 is told from version 1 by its fields
VERSION: Final = 2

BEATS: Final = ("register", "heartbeat")
# those whose clock a boot is measured by: one each ten seconds or so, and few of them
ANCHORS: Final = ("start", "opened", "scan", "stop")
# a boot that has one of these is a client's
CLIENT_EVENTS: Final = ("refreshed", "send_failed", "isolated")
EVENTS: Final = (
    *BEATS,
    *ANCHORS,
    *CLIENT_EVENTS,
    "unregister",
    "evict",
    "fenced",
    "late",
    "route",
    "served",
    "client_gone",
    "pulls",
    "dropped",
)
# of a removal that the broker did not announce
UNANNOUNCED: Final = ("silent", "disconnected")

# a line without one of these is bad
REQUIRED: Final = ("v", "seq", "ts_ms", "mono_ms", "boot_id", "event")
# more than that nobody counts; sums of it are whole numbers of 64 bits
MOST_COUNT: Final = 1_000_000_000_000
# what Spark puts a line into that is no JSON, or whose fields are of other types
CORRUPT: Final = "corrupt_line"

_TYPES: Final[dict[str, T.DataType]] = {
    "v": T.LongType(),
    "seq": T.LongType(),
    "ts_ms": T.LongType(),
    "mono_ms": T.DoubleType(),
    "nameserver": T.StringType(),
    "boot_id": T.StringType(),
    "event": T.StringType(),
    "cluster": T.StringType(),
    "broker_name": T.StringType(),
    "broker_id": T.LongType(),
    "broker_addr": T.StringType(),
    "expiry_ms": T.DoubleType(),
    "agent_id": T.StringType(),
    "reason": T.StringType(),
    "silent_ms": T.DoubleType(),
    "scan": T.LongType(),
    "topic": T.StringType(),
    "revision": T.LongType(),
    # a number in `scan`, a list in `route` and `refreshed`: Spark hands out the JSON of what is no string
    "brokers": T.StringType(),
    "client": T.StringType(),
    "count": T.LongType(),
    # lists of version 2; `topics` is a number in the lines of brokers
    "changes": T.StringType(),
    "topics": T.StringType(),
    "revisions": T.StringType(),
    "counts": T.StringType(),
    "late_ms": T.DoubleType(),
    "scan_interval_ms": T.DoubleType(),
    "broker_expiry_ms": T.DoubleType(),
    "version": T.StringType(),
}
LINE: Final = T.StructType([T.StructField(name, kind) for name, kind in _TYPES.items()])
LINE_OR_CORRUPT: Final = T.StructType([*LINE.fields, T.StructField(CORRUPT, T.StringType())])

# of `brokers`, and of `changes`, in a `route` line
BROKERS: Final = "array<struct<name:string,ids:array<bigint>>>"
CHANGES: Final = f"array<struct<topics:array<string>,set:{BROKERS},unset:array<string>,whole:boolean>>"
