"""Which tables does the page have? The worst intervals, every group, and what became of each file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.report.html.elements import (
    COMPACT,
    NUMBER,
    Column,
    Html,
    card,
    details,
    element,
    empty,
    joined,
    table,
)
from namesrv_spark_jobs.times import NONE, shown_duration, shown_moment

Row = Mapping[str, Any]
Summary = Mapping[str, Any]
_STATISTICS: Final = ("p50", "p90", "p99", "max")
# so few rows are shown at once
_HANDFUL: Final = 5
# a file is unremarkable when all of these are nought
_REMARKABLE: Final = {
    "bad": "bad lines",
    "duplicates": "duplicates",
    "newer_version": "newer version",
    "unknown_events": "unknown events",
    "dropped_by_writers": "dropped by the writer",
    "clock_steps": "clock steps",
}


def worst_card(rows: Sequence[Row]) -> Html:
    """The intervals that were longest."""
    if not rows:
        return card("worst", "Worst intervals", empty("No broker was removed."))
    columns = (
        *(Column("Broker", "name"), Column("NameServer", "name"), Column("Last heard (UTC)", "time")),
        *(Column("Removed", "time"), Column("Stale", NUMBER), Column("At least", NUMBER), Column("Reason", "nowrap")),
        *(Column("Clients", NUMBER), Column("Answers", NUMBER), Column("", "nowrap")),
    )
    note = (
        "Stale: from the last heartbeat to the removal; it died within the first period of that. "
        "Clients and answers had its route meanwhile."
    )
    shown = table(columns, [_interval(row) for row in rows], caption="The longest, longest first")
    return card("worst", "Worst intervals", element("p", note, kind="note"), shown)


def _interval(row: Row) -> list[object]:
    broker = f"{row['cluster']}/{row['broker_name']}/{row['broker_id']} {row['broker_addr']}"
    times = [shown_moment(row["last_ok_ms"]), shown_moment(row["removed_ms"]).partition(" ")[2] or NONE]
    lasted = [shown_duration(row["upper_ms"]), shown_duration(row["lower_ms"])]
    exposed = [f"{row['clients_exposed']:,}", f"{row['exposed_pulls']:,}"]
    return [broker, row["nameserver"], *times, *lasted, row["reason"], *exposed, joined(_tags(row))]


def _tags(row: Row) -> Iterator[Html]:
    if row["over_bound"]:
        yield element("span", "over bound", kind="tag bad")
    if row["false_eviction"]:
        yield element("span", "false", kind="tag odd")


def groups_card(summary: Summary) -> Html:
    """The same numbers for each NameServer, cluster, reason, topic, broker and client."""
    registry, client = summary["registry"], summary["client"]
    kinds = {
        "NameServer": registry["by_nameserver"],
        "Cluster": registry["by_cluster"],
        "Reason": registry["by_reason"],
        "Topic (at clients)": client["by_topic"],
        "Broker": registry["by_broker"],
        "Client": client["by_client"],
    }
    parts = [_group(name, groups) for name, groups in kinds.items() if groups]
    parts += _counts(summary)
    if not parts:
        return card("groups", "By group", empty("There is nothing to group."))
    words = "Staleness of each; of brokers and clients the worst are listed, more of them are in metrics.csv."
    note = element("p", words, kind="note")
    return card("groups", "By group", note, *parts)


def _group(name: str, groups: Mapping[str, Row]) -> Html:
    columns = (Column(name, "name"), Column("Count", NUMBER), *(Column(part, NUMBER) for part in _STATISTICS))
    ordered = sorted(groups.items(), key=lambda item: (-(item[1]["max"] or 0), item[0]))
    rows = [
        (key or NONE, f"{row['count']:,}", *(shown_duration(row[part]) for part in _STATISTICS)) for key, row in ordered
    ]
    return details(_counted(name, len(rows)), table(columns, rows, caption=f"Staleness by {name.lower()}"))


def _counted(name: str, number: int) -> Html:
    return joined([f"{name} ", element("span", f"({number:,})", kind="count")])


def _counts(summary: Summary) -> list[Html]:
    """What is counted rather than timed."""
    kinds = {
        "False evictions by broker": summary["false_evictions"]["by_broker"],
        "Near misses by broker": summary["near_misses"]["by_broker"],
        "Answers with a dead broker, by broker": summary["exposed_pulls"]["by_broker"],
        "Answers with a dead broker, by topic": summary["exposed_pulls"]["by_topic"],
    }
    parts = [_count(name, groups) for name, groups in kinds.items() if groups]
    divergence = summary["divergence"]["by_broker"]
    return [*parts, _divergence(divergence)] if divergence else parts


def _count(name: str, groups: Mapping[str, int]) -> Html:
    rows = [(key or NONE, f"{count:,}") for key, count in sorted(groups.items(), key=lambda item: (-item[1], item[0]))]
    return details(
        _counted(name, len(rows)),
        table((Column("", "name"), Column("Count", NUMBER)), rows, caption=name, kind=COMPACT),
    )


def _divergence(brokers: Mapping[str, Row]) -> Html:
    columns = (
        Column("Broker", "name"),
        Column("Episodes", NUMBER),
        Column("Longest", NUMBER),
        Column("In all", NUMBER),
    )
    ordered = sorted(brokers.items(), key=lambda item: (-item[1]["total_ms"], item[0]))
    rows = [
        (key, f"{row['episodes']:,}", shown_duration(row["longest_ms"]), shown_duration(row["total_ms"]))
        for key, row in ordered
    ]
    shown = table(columns, rows, caption="Divergence by broker")
    return details(_counted("Divergence between NameServers", len(rows)), shown)


def input_card(summary: Summary) -> Html:
    """What was read, and what could not be."""
    read, censored = summary["input"], summary["client"]["censored"]
    numbers = [
        ("Lines", read["lines"]),
        *((words.capitalize(), read[name]) for name, words in _REMARKABLE.items()),
        ("Files that end too early", read["truncated_files"]),
        ("Left out by options", read["left_out"]),
        ("Clients censored: left", censored["client_gone"]),
        ("Clients censored: broker returned", censored["returned"]),
        ("Clients censored: log ended", censored["log_end"]),
        ("Routes of unknown revisions", summary["client"]["unknown_revisions"]),
    ]
    rows = [(name, f"{number:,}") for name, number in numbers]
    shown = table((Column("What"), Column("Count", NUMBER)), rows, caption="All input together", kind=COMPACT)
    return card("input", "Input", shown, _odd_files(read["per_file"]), _all_settings(summary["settings"]))


def _odd_files(files: Sequence[Row]) -> Html:
    """The files about which there is something to say."""
    odd = [row for row in files if row["truncated"] or any(row[name] for name in _REMARKABLE)]
    if not odd:
        return element("p", f"None of the {len(files):,} files has anything odd.", kind="note")
    numbers = (Column(name, NUMBER) for name in _REMARKABLE.values())
    columns = (Column("File", "name"), Column("Lines", NUMBER), *numbers, Column("", "nowrap"))
    rows = [(row["file"], f"{row['lines']:,}", *(f"{row[name]:,}" for name in _REMARKABLE), _cut(row)) for row in odd]
    shown = table(columns, rows, caption="Files that are not as they should be")
    return details(_counted("Files with oddities", len(odd)), shown, is_open=len(odd) <= _HANDFUL)


def _cut(row: Row) -> object:
    return element("span", "ends too early", kind="tag bad") if row["truncated"] else ""


def _all_settings(boots: Sequence[Row]) -> Html:
    columns = (
        *(Column("NameServer", "name"), Column("Boot", "nowrap"), Column("Version", "nowrap")),
        *(Column("From (UTC)", "time"), Column("Until", "time"), Column("Expiry", NUMBER), Column("Scan", NUMBER)),
    )
    rows = [
        (
            *(boot["nameserver"] or NONE, boot["boot_id"], boot["version"] or NONE, shown_moment(boot["from_ms"])),
            shown_moment(boot["until_ms"]),
            *(shown_duration(boot["broker_expiry_ms"]), shown_duration(boot["scan_interval_ms"])),
        )
        for boot in boots
    ]
    return details(_counted("Runs of the servers", len(rows)), table(columns, rows, caption="Runs, and their settings"))
