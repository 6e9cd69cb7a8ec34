"""What should somebody look at? The numbers of a summary as sentences, the worst first."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Finding = dict[str, str]
Summary = Mapping[str, Any]

_SEVERITIES: Final = ("critical", "warning", "info")


def findings(summary: Summary) -> list[Finding]:
    """All of them, by severity."""
    found = [*_of_staleness(summary), *_of_replay(summary), *_of_brokers(summary), *_of_input(summary)]
    return sorted(found, key=lambda finding: (_SEVERITIES.index(finding["severity"]), finding["code"]))


def _finding(severity: str, code: str, text: str) -> Finding:
    return {"severity": severity, "code": code, "text": text}


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:,.1f} s"


def _of_staleness(summary: Summary) -> Iterator[Finding]:
    registry, client = summary["registry"], summary["client"]
    if registry["over_bound"]:
        text = f"Removed later than expiry, scan and delays of the server explain: {registry['over_bound']:,}."
        yield _finding("critical", "over_bound", text)
    if not registry["all"]["count"]:
        yield _finding("info", "no_evictions", "No broker was removed in this time: there is no staleness to measure.")
        return
    worst, bound = client["all"]["max"], summary["bound_ms"]
    if worst is not None and worst > bound:
        text = f"The slowest client had a dead broker's route for {_seconds(worst)}; the bound is {_seconds(bound)}."
        yield _finding("warning", "clients_over_bound", text)
    censored = sum(client["censored"].values())
    if censored:
        text = f"{censored:,} of {client['exposed']:,} exposed clients did not get a new route while the log looked."
        yield _finding("info", "censored", f"{text} Their staleness is only known from below.")
    if summary["exposed_pulls"]["total"]:
        text = f"Answers that still had a dead broker: {summary['exposed_pulls']['total']:,}."
        yield _finding("info", "exposed_pulls", text)


def _of_replay(summary: Summary) -> Iterator[Finding]:
    replay = summary["as_logged"]
    if not replay["exact"]:
        text = (
            f"A replay of the logged settings differs from the log: {replay['missing']:,} evictions are missing, "
            f"{replay['extra']:,} are extra, {replay['other_scan']:,} are at another scan. Lines may be missing."
        )
        yield _finding("warning", "replay_differs", text)
    calm = [row for row in summary["what_if"] if not row["false"] and row["evictions"] and row["policy"] != "logged"]
    if calm:
        best = min(calm, key=lambda row: (row["client"]["p99"], -row["scan_ms"], row["policy"]))
        what = f"Of the settings that were tried, {_setting(best)} has no false eviction and the shortest staleness"
        yield _finding("info", "best_setting", f"{what}: p99 {_seconds(best['client']['p99'])}.")


def _setting(row: Mapping[str, Any]) -> str:
    what = f"phi {row['phi']:g}" if row["policy"] == "phi" else f"expiry {row['expiry_ms'] / 1000:g} s"
    return f"{what}, scan {row['scan_ms'] / 1000:g} s, poll {row['poll_ms'] / 1000:g} s"


def _of_brokers(summary: Summary) -> Iterator[Finding]:
    if summary["false_evictions"]["count"]:
        text = f"Evictions of brokers whose process went on: {summary['false_evictions']['count']:,}."
        yield _finding("warning", "false_evictions", text)
    near = summary["near_misses"]
    if near["count"]:
        text = f"{near['count']:,} times a broker was silent for over two thirds of its expiry and came back"
        worst = f"{near['worst']['broker']} after {_seconds(near['worst']['silent_ms'])}"
        yield _finding("info", "near_misses", f"{text}; the closest was {worst}.")
    divergence = summary["divergence"]
    longest = _seconds(divergence["longest_ms"])
    if divergence["longest_ms"] > summary["bound_ms"]:
        text = f"NameServers disagreed about a broker for up to {longest}: one of them was not reached."
        yield _finding("warning", "divergence", text)
    elif divergence["episodes"]:
        text = f"NameServers disagreed about brokers {divergence['episodes']:,} times, for {longest} at most."
        yield _finding("info", "divergence", text)


def _of_input(summary: Summary) -> Iterator[Finding]:
    read = summary["input"]
    texts = {
        "bad": ("warning", "Lines that could not be read"),
        "truncated_files": ("warning", "Compressed files that end too early, so that the rest of them is not known"),
        "dropped_by_writers": ("warning", "Events that the servers dropped when they wrote the log"),
        "clock_steps": ("warning", "Steps of a server's wall clock, which affect no interval within one server"),
        "newer_version": ("warning", "Lines of a newer version of the log, of which was read what is known"),
        "unknown_events": ("info", "Lines of a kind that is not known, left out"),
        "duplicates": ("info", "Lines that were there before, counted once"),
    }
    for code, (severity, words) in texts.items():
        if read[code]:
            yield _finding(severity, code, f"{words}: {read[code]:,}.")
    unknown = summary["client"]["unknown_revisions"]
    if unknown:
        text = f"Routes that clients got and the log does not have, so that they say nothing of staleness: {unknown:,}."
        yield _finding("info", "unknown_revisions", text)
    unset = sum(1 for boot in summary["settings"] if boot["scan_interval_ms"] is None)
    if unset:
        yield _finding("info", "unknown_settings", f"Boots whose settings are not in the log: {unset:,}.")
