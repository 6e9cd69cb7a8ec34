"""What does a line of a heartbeat log look like to its reader? The reading half of docs/heartbeat-log.md."""

from typing import Final

from pyspark.sql import types as T  # noqa: N812 - as everyone calls it

VERSION: Final = 1

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
    "late_ms": T.DoubleType(),
    "scan_interval_ms": T.DoubleType(),
    "broker_expiry_ms": T.DoubleType(),
    "version": T.StringType(),
}
LINE: Final = T.StructType([T.StructField(name, kind) for name, kind in _TYPES.items()])
LINE_OR_CORRUPT: Final = T.StructType([*LINE.fields, T.StructField(CORRUPT, T.StringType())])

# of the `brokers` of a `route` line
ROUTE: Final = T.ArrayType(
    T.StructType([T.StructField("name", T.StringType()), T.StructField("ids", T.ArrayType(T.LongType()))])
)
