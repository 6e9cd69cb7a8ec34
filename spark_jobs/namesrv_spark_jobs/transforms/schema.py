"""The schema of heartbeat log lines as the report reads them: docs/heartbeat-log.md, versions 1 and 2."""

from typing import Final

# the newest version that is fully understood; the fields of a line show whether it is of version 1 or 2
VERSION: Final = 2

HEARTBEATS: Final = ("register", "heartbeat")
# events from which the clock of a boot is computed: about one every ten seconds, so there are few
ANCHORS: Final = ("start", "opened", "scan", "stop")
# a boot that has one of these is a client's
CLIENT_EVENTS: Final = ("refreshed", "send_failed", "isolated")
# events whose lines name topics
TOPIC_EVENTS: Final = frozenset({"route", "served", "pulls", "refreshed", "send_failed"})
EVENTS: Final = (
    *(*HEARTBEATS, *ANCHORS, *CLIENT_EVENTS),
    *("unregister", "evict", "fenced", "late", "route", "served", "client_gone", "pulls", "dropped"),
)
# reasons of evictions that the broker did not announce
UNANNOUNCED: Final = ("silent", "disconnected")

# a line without one of these is bad
REQUIRED: Final = ("v", "seq", "ts_ms", "mono_ms", "boot_id", "event")
# the largest valid count; sums of such counts fit into 64 bits
MOST_COUNT: Final = 1_000_000_000_000
# the column with the text of a line that is not JSON, or has a field of a wrong type
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
    # lists, which are read as JSON text, since `brokers` and `topics` are numbers in lines of other events
    **dict.fromkeys(("brokers", "changes", "topics", "revisions", "counts"), "string"),
}

# the types of `brokers` and of `changes` in a `route` line
BROKERS: Final = "array<struct<name:string,ids:array<bigint>>>"
CHANGES: Final = f"array<struct<topics:array<string>,set:{BROKERS},unset:array<string>,whole:boolean>>"
