"""Findings: sentences about the numbers of a summary, the most severe first."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from namesrv_spark_jobs.report.measures import has_heartbeats
from namesrv_spark_jobs.report.shown import counted, shown_moment

Summary = Mapping[str, Any]
# a finding: severity, code and text
Found = Iterator[tuple[str, str, str]]

# the longest overlap of two boots that inexact clocks explain
_OVERLAP_MS: Final = 1_000
_SEVERITIES: Final = ("critical", "warning", "info")
# findings about the input: severity, and the words for one and for many
_OF_INPUT: Final = {
    "bad": ("warning", "line could not be read", "lines could not be read"),
    "truncated_files": (
        "warning",
        "compressed file ends too early; the rest of it is missing",
        "compressed files end too early; the rest of them is missing",
    ),
    "dropped_by_writers": (
        "warning",
        "event was dropped by a server or client instead of logged",
        "events were dropped by servers or clients instead of logged",
    ),
    "clock_steps": (
        "warning",
        "step of a server's wall clock; no interval within one server is affected",
        "steps of servers' wall clocks; no interval within one server is affected",
    ),
    "newer_version": (
        "warning",
        "line is of a newer version of the log; only its known fields were used",
        "lines are of a newer version of the log; only their known fields were used",
    ),
    "unknown_events": ("info", "line of an unknown kind was ignored", "lines of unknown kinds were ignored"),
    "duplicates": ("info", "line occurs more than once and was counted once", "repeated lines were counted once"),
}


def findings(summary: Summary) -> list[dict[str, str]]:
    """All findings, sorted by severity and code."""
    unordered = [*_of_staleness(summary), *_of_replay(summary), *_of_brokers(summary), *_of_input(summary)]
    ordered = sorted(unordered, key=lambda finding: (_SEVERITIES.index(finding[0]), finding[1]))
    return [{"severity": severity, "code": code, "text": text} for severity, code, text in ordered]


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def _of_staleness(summary: Summary) -> Found:
    registry, client, pulls = summary["registry"], summary["client"], summary["exposed_pulls"]["total"]
    if registry["over_bound"]:
        removals = counted(registry["over_bound"], "removal was", "removals were")
        yield "critical", "over_bound", f"{removals} later than expiry, scan interval and delays of the server explain."
    if not registry["all"]["count"] and not has_heartbeats(summary):
        lines, left_out = summary["input"]["lines"], summary["input"]["left_out"]
        filters = f": --since, --until and the other filters leave out {left_out:,} of {counted(lines, 'line')}"
        yield "warning", "no_heartbeats", f"No heartbeat of a broker was read{filters if left_out else ''}."
        return
    if not registry["all"]["count"]:
        yield "info", "no_evictions", "No broker was removed in this time, so no staleness can be measured."
        return
    worst, bound = client["all"]["max"], summary["bound_ms"]
    if worst is not None and worst > bound:
        slowest = f"The slowest client had the route of a dead broker for {_seconds(worst)}"
        yield "warning", "clients_over_bound", f"{slowest}; the bound is {_seconds(bound)}."
    if censored := sum(client["censored"].values()):
        exposures = counted(client["exposed"], "exposure of a client", "exposures of clients")
        text = f"{censored:,} of {exposures} ended without a route that lacks the broker"
        yield "info", "censored", f"{text}: the client left, the broker returned, or the log ended."
    if pulls:
        yield "info", "exposed_pulls", f"{counted(pulls, 'response', 'responses')} still contained a dead broker."


def _of_replay(summary: Summary) -> Found:
    replay = summary["as_logged"]
    if not replay["exact"]:
        missing = counted(replay["missing"], "eviction")
        differ = f"{missing} missing, {replay['extra']:,} extra"
        text = (
            f"A replay of the logged settings differs from the log: {differ}, {replay['other_scan']:,} at another scan."
        )
        yield "warning", "replay_differs", f"{text} Lines may be missing from the log."
    calm = [row for row in summary["what_if"] if not row["false"] and row["evictions"] and row["policy"] != "logged"]
    if calm:
        best = min(calm, key=lambda row: (row["client"]["p99"], -row["scan_ms"]))
        expiry, scan, poll = (f"{best[name] / 1000:g} s" for name in ("expiry_ms", "scan_ms", "poll_ms"))
        setting = f"expiry {expiry}, scan {scan}, poll {poll}"
        text = f"Of the settings tried, the shortest staleness without a false eviction comes from {setting}"
        yield "info", "best_setting", f"{text}: p99 {_seconds(best['client']['p99'])} at clients."


def _of_brokers(summary: Summary) -> Found:
    if false := summary["false_evictions"]["count"]:
        text = counted(false, "eviction was", "evictions were")
        yield "warning", "false_evictions", f"{text} false: the broker process was still alive."
    near, divergence = summary["near_misses"], summary["divergence"]
    if near["count"]:
        text = f"{counted(near['count'], 'near miss', 'near misses')}, beyond two thirds of an expiry"
        worst = f"{near['worst']['broker']} came back after {_seconds(near['worst']['silent_ms'])} of silence"
        yield "info", "near_misses", f"{text}; the closest: {worst}."
    longest, episodes = _seconds(divergence["longest_ms"]), divergence["episodes"]
    if divergence["longest_ms"] > summary["bound_ms"]:
        text = f"NameServers disagreed about a broker for up to {longest}: its heartbeats did not reach one of them."
        yield "warning", "divergence", text
    elif episodes:
        times = "once" if episodes == 1 else f"{episodes:,} times"
        yield "info", "divergence", f"NameServers disagreed about a broker {times}, for {longest} at most."


def _of_input(summary: Summary) -> Found:
    for code, (severity, one, many) in _OF_INPUT.items():
        if summary["input"][code]:
            is_selected = code == "clock_steps" and summary["input"]["left_out"]
            selected = ", but --since and --until select lines by that clock" if is_selected else ""
            yield severity, code, f"{counted(summary['input'][code], one, many)}{selected}."
    yield from _of_missing_lines(summary)
    yield from _of_shared_names(summary)
    if unknown := summary["client"]["unknown_revisions"]:
        text = counted(unknown, "route that a client was given is", "routes that clients were given are")
        yield "info", "unknown_revisions", f"{text} not in the log, and not in the staleness of clients."
    if unset := sum(1 for boot in summary["settings"] if boot["scan_interval_ms"] is None):
        text = counted(unset, "boot of a server has", "boots of servers have")
        unjudged = "they are not in the log, so no removal there counts as over its bound, or is replayed under others"
        yield "info", "unknown_settings", f"{text} unknown settings: {unjudged}."


def _of_missing_lines(summary: Summary) -> Found:
    """A boot is in several parts if lines between them are missing, or left out because its clock was set."""
    ends = [pair for pair in pairwise(summary["settings"]) if pair[0]["boot_id"] == pair[1]["boot_id"]]
    if ends:
        before, after = max(ends, key=lambda pair: pair[1]["from_ms"] - pair[0]["until_ms"])
        time = f"from {shown_moment(before['until_ms'])} to {shown_moment(after['from_ms'])} UTC"
        if after["from_ms"] < before["until_ms"]:
            time = f"after {shown_moment(before['until_ms'])} UTC, where its wall clock was set back"
        others = f", and at {counted(len(ends) - 1, 'other place')} in the logs" if len(ends) > 1 else ""
        server = before["nameserver"] or "a NameServer"
        found = summary["input"]
        causes = (
            ("the server dropped them", found["dropped_by_writers"]),
            ("its wall clock was outside of --since and --until", found["left_out"] and found["clock_steps"]),
            ("a file is lost or damaged", True),
        )
        why = ", or ".join(cause for cause, is_possible in causes if is_possible)
        text = f"Lines of {server} are missing {time}{others}: {why}."
        yield "warning", "missing_lines", f"{text} No interval is counted across missing lines."


def _of_shared_names(summary: Summary) -> Found:
    """Boots of one server follow each other. Boots that overlap are those of two servers."""
    # (server, boot) -> the first and last moment of all its parts
    extents: dict[tuple[str, str], tuple[int, int]] = {}
    for boot in summary["settings"]:
        key, since, until = (boot["nameserver"] or "", boot["boot_id"]), boot["from_ms"], boot["until_ms"]
        known = extents.get(key, (since, until))
        extents[key] = min(known[0], since), max(known[1], until)
    ordered = sorted((server, *extent, boot) for (server, boot), extent in extents.items())
    # (milliseconds, server, from, until, both boots)
    overlaps: list[tuple[int, str, int, int, str, str]] = []
    # the boot of the server that has lasted longest so far
    before, last, other = "", 0, ""
    for server, since, until, boot in ordered:
        end = min(last, until)
        if server == before and end - since > _OVERLAP_MS:
            overlaps.append((end - since, server, since, end, other, boot))
        if server != before or until > last:
            before, last, other = server, until, boot
    if overlaps:
        _, server, since, end, one, other = max(overlaps)
        time = f"from {shown_moment(since)} to {shown_moment(end)} UTC"
        others = f" (and {counted(len(overlaps) - 1, 'other overlap')})" if len(overlaps) > 1 else ""
        text = f"Boots {one} and {other} of {server or 'a NameServer without a name'} overlap {time}{others}"
        cause = "two servers have this name, or its wall clock was set back between them"
        what = "Each of these boots counts as a server that may disagree: give each server its own nameserver-name"
        yield "warning", "shared_name", f"{text}: {cause}. {what}."
