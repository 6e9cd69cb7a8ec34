"""The schema of heartbeat log lines: the reading half of docs/heartbeat-log.md, versions 1 and 2."""

from typing import Final

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
# the column of a line that is no JSON, or whose fields are of other types
CORRUPT: Final = "corrupt_line"

# the fields of a line, and their types as PySpark spells them
LINE: Final[dict[str, str]] = {
    **dict.fromkeys(("v", "seq", "ts_ms"), "bigint"),
    **dict.fromkeys(("mono_ms", "expiry_ms", "silent_ms", "late_ms"), "double"),
    **dict.fromkeys(("scan_interval_ms", "broker_expiry_ms"), "double"),
    **dict.fromkeys(("broker_id", "scan", "revision", "count"), "bigint"),
    **dict.fromkeys(("nameserver", "boot_id", "event", "version"), "string"),
    **dict.fromkeys(("cluster", "broker_name", "broker_addr", "agent_id", "reason"), "string"),
    **dict.fromkeys(("topic", "client"), "string"),
    # lists, of which the JSON is handed out; `brokers` and `topics` are numbers in lines of other kinds
    **dict.fromkeys(("brokers", "changes", "topics", "revisions", "counts"), "string"),
}

# of `brokers`, and of `changes`, in a `route` line
BROKERS: Final = "array<struct<name:string,ids:array<bigint>>>"
CHANGES: Final = f"array<struct<topics:array<string>,set:{BROKERS},unset:array<string>,whole:boolean>>"
