"""Findings: the numbers of a summary as sentences, the worst first."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Finding = dict[str, str]
Summary = Mapping[str, Any]

_SEVERITIES: Final = ("critical", "warning", "info")
# of the input: severity, and what is counted, for one and for many
_OF_INPUT: Final = {
    "bad": ("warning", "line could not be read", "lines could not be read"),
    "truncated_files": (
        "warning",
        "compressed file ends too early; the rest of it is missing",
        "compressed files end too early; the rest of them is missing",
    ),
    "dropped_by_writers": (
        "warning",
        "event was dropped by a server instead of logged",
        "events were dropped by the servers instead of logged",
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


def findings(summary: Summary) -> list[Finding]:
    """All of them, by severity."""
    found = [*_of_staleness(summary), *_of_replay(summary), *_of_brokers(summary), *_of_input(summary)]
    return sorted(found, key=lambda finding: (_SEVERITIES.index(finding["severity"]), finding["code"]))


def _finding(severity: str, code: str, text: str) -> Finding:
    return {"severity": severity, "code": code, "text": text}


def _count(number: int, one: str, many: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{number:,} {one if number == 1 else many}"


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:,.1f} s"


def _of_staleness(summary: Summary) -> Iterator[Finding]:
    registry, client = summary["registry"], summary["client"]
    if registry["over_bound"]:
        text = _count(registry["over_bound"], "broker was", "brokers were")
        text += " removed later than expiry, scan interval and delays of the server explain."
        yield _finding("critical", "over_bound", text)
    if not registry["all"]["count"]:
        yield _finding("info", "no_evictions", "No broker was removed in this time: there is no staleness to measure.")
        return
    worst, bound = client["all"]["max"], summary["bound_ms"]
    if worst is not None and worst > bound:
        text = (
            f"The slowest client had the route of a dead broker for {_seconds(worst)}; the bound is {_seconds(bound)}."
        )
        yield _finding("warning", "clients_over_bound", text)
    censored = sum(client["censored"].values())
    if censored:
        exposed = _count(client["exposed"], "exposed client was", "exposed clients were")
        text = f"{censored:,} of {exposed} not given a new route before the log ended"
        yield _finding("info", "censored", f"{text}: their staleness is at least what was seen of it.")
    if summary["exposed_pulls"]["total"]:
        text = _count(summary["exposed_pulls"]["total"], "answer", "answers") + " still contained a dead broker."
        yield _finding("info", "exposed_pulls", text)


def _of_replay(summary: Summary) -> Iterator[Finding]:
    replay = summary["as_logged"]
    if not replay["exact"]:
        text = (
            f"A replay of the logged settings differs from the log: {replay['missing']:,} evictions missing, "
            f"{replay['extra']:,} extra, {replay['other_scan']:,} at another scan. Lines may be missing from the log."
        )
        yield _finding("warning", "replay_differs", text)
    calm = [row for row in summary["what_if"] if not row["false"] and row["evictions"] and row["policy"] != "logged"]
    if calm:
        best = min(calm, key=lambda row: (row["client"]["p99"], -row["scan_ms"], row["policy"]))
        text = f"Of the settings tried, the shortest staleness without a false eviction comes from {_setting(best)}"
        yield _finding("info", "best_setting", f"{text}: p99 {_seconds(best['client']['p99'])} at clients.")


def _setting(row: Mapping[str, Any]) -> str:
    what = f"phi {row['phi']:g}" if row["policy"] == "phi" else f"expiry {row['expiry_ms'] / 1000:g} s"
    return f"{what}, scan {row['scan_ms'] / 1000:g} s, poll {row['poll_ms'] / 1000:g} s"


def _of_brokers(summary: Summary) -> Iterator[Finding]:
    false = summary["false_evictions"]["count"]
    if false:
        text = _count(false, "eviction was", "evictions were") + " false: the broker process was still alive."
        yield _finding("warning", "false_evictions", text)
    near = summary["near_misses"]
    if near["count"]:
        text = _count(near["count"], "near miss", "near misses")
        worst = f"{near['worst']['broker']} came back after {_seconds(near['worst']['silent_ms'])} of silence"
        yield _finding("info", "near_misses", f"{text}, beyond two thirds of an expiry; the closest: {worst}.")
    divergence = summary["divergence"]
    longest = _seconds(divergence["longest_ms"])
    if divergence["longest_ms"] > summary["bound_ms"]:
        text = f"NameServers disagreed about a broker for up to {longest}: its heartbeats did not reach one of them."
        yield _finding("warning", "divergence", text)
    elif divergence["episodes"]:
        times = "once" if divergence["episodes"] == 1 else f"{divergence['episodes']:,} times"
        yield _finding("info", "divergence", f"NameServers disagreed about a broker {times}, for {longest} at most.")


def _of_input(summary: Summary) -> Iterator[Finding]:
    for code, (severity, one, many) in _OF_INPUT.items():
        if summary["input"][code]:
            yield _finding(severity, code, f"{_count(summary['input'][code], one, many)}.")
    unknown = summary["client"]["unknown_revisions"]
    if unknown:
        text = _count(unknown, "route that a client was given is", "routes that clients were given are")
        yield _finding("info", "unknown_revisions", f"{text} not in the log, and not in the staleness of clients.")
    unset = sum(1 for boot in summary["settings"] if boot["scan_interval_ms"] is None)
    if unset:
        text = _count(unset, "run of a server has", "runs of servers have")
        yield _finding("info", "unknown_settings", f"{text} no settings in the log.")
