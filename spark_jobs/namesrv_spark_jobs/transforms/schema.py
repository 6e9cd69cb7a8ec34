"""The schema of heartbeat log lines: the reading half of docs/heartbeat-log.md, versions 1 and 2."""

from typing import Final, TypeVar

from pyspark.sql import DataFrameReader
from pyspark.sql import types as T  # noqa: N812 - as everyone calls it
from pyspark.sql.streaming.readwriter import DataStreamReader

_Reader = TypeVar("_Reader", DataFrameReader, DataStreamReader)

# the newest that is read; version 2 is told from version 1 by its fields
VERSION: Final = 2

BEATS: Final = ("register", "heartbeat")
# those whose clock a boot is measured by: one each ten seconds or so, and few of them
ANCHORS: Final = ("start", "opened", "scan", "stop")
# a boot that has one of these is a client's
CLIENT_EVENTS: Final = ("refreshed", "send_failed", "isolated")
EVENTS: Final = (
    *(*BEATS, *ANCHORS, *CLIENT_EVENTS),
    *("unregister", "evict", "fenced", "late", "route", "served", "client_gone", "pulls", "dropped"),
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
    **dict.fromkeys(("v", "seq", "ts_ms"), T.LongType()),
    **dict.fromkeys(("mono_ms", "expiry_ms", "silent_ms", "late_ms"), T.DoubleType()),
    **dict.fromkeys(("scan_interval_ms", "broker_expiry_ms"), T.DoubleType()),
    **dict.fromkeys(("broker_id", "scan", "revision", "count"), T.LongType()),
    **dict.fromkeys(("nameserver", "boot_id", "event", "version"), T.StringType()),
    **dict.fromkeys(("cluster", "broker_name", "broker_addr", "agent_id", "reason"), T.StringType()),
    **dict.fromkeys(("topic", "client"), T.StringType()),
    # lists, of which Spark hands out the JSON; `brokers` and `topics` are numbers in lines of other kinds
    **dict.fromkeys(("brokers", "changes", "topics", "revisions", "counts"), T.StringType()),
}
LINE: Final = T.StructType([T.StructField(name, kind) for name, kind in _TYPES.items()])
LINE_OR_CORRUPT: Final = T.StructType([*LINE.fields, T.StructField(CORRUPT, T.StringType())])

# of `brokers`, and of `changes`, in a `route` line
BROKERS: Final = "array<struct<name:string,ids:array<bigint>>>"
CHANGES: Final = f"array<struct<topics:array<string>,set:{BROKERS},unset:array<string>,whole:boolean>>"


def as_read(reader: _Reader) -> _Reader:
    """A reader of lines, of a batch or of a stream: damaged lines and files give what can be read of them."""
    named = reader.schema(LINE_OR_CORRUPT).option("columnNameOfCorruptRecord", CORRUPT)
    return named.option("mode", "PERMISSIVE").option("ignoreCorruptFiles", value=True).option("lineSep", "\n")
