"""The report as one HTML page: what the Jinja2 template shows, and in which order."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from namesrv_spark_jobs.report.charts import Staleness, draw_gaps, draw_staleness, draw_timeline, shown_bound
from namesrv_spark_jobs.report.shown import NONE, printable, shown_duration, shown_moment
from namesrv_spark_jobs.report.svg import NARROW, WIDE, Picture
from namesrv_spark_jobs.report.what_if_chart import Setting, best, draw_what_if

Summary = Mapping[str, Any]
Row = Mapping[str, Any]

# a word beside the colour: not everyone sees colours
_SEVERITIES: Final = {"critical": "Critical", "warning": "Warning", "info": "Note", "good": "Good"}
# brokers in the picture of lives; further ones are a click away
_ROWS: Final = 16
_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
# a file is usual when all of these are zero
_UNUSUAL: Final = {
    "bad": "bad lines",
    "duplicates": "duplicates",
    "newer_version": "newer version",
    "unknown_events": "unknown events",
    "dropped_by_writers": "dropped by the writer",
    "clock_steps": "clock steps",
}
_WHAT_IF_LEGEND: Final = (
    ("dot", "logged", "as logged"),
    ("dot", "fixed", "a fixed expiry"),
    ("dot", "phi", "accrual detector"),
    ("line", "front", "the best to choose from"),
)


def page(summary: Summary, charts: Mapping[str, Any]) -> str:
    """The page of one report; both are as `analysis.Analysis` has them.

    It needs nothing from anywhere, and allows nothing but its own style.
    """
    style = _resource("style.css")
    return (
        _environment()
        .get_template("report.html")
        .render(
            style=Markup(style),  # noqa: S704 - a file of this package
            policy=_policy(style),
            summary=summary,
            charts=charts,
            lead=_lead(summary["input"]),
            findings=_findings(summary),
            key_figures=list(_key_figures(summary)),
            **_of_staleness(summary, charts),
            **_of_settings(charts["what_if"]),
            **_of_groups(summary),
            **_of_input(summary),
            pictures=_pictures(summary, charts),
            timeline=charts["timeline"]["brokers"],
            rows_shown=_ROWS,
            timeline_legend=_timeline_legend(charts["timeline"]),
            worst=charts["worst"],
            severities=_SEVERITIES,
            none_sign=NONE,
        )
    )


def _environment() -> Environment:
    """Everything that a template shows is escaped, and made printable: names in a log are anybody's."""
    made = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["count"] = lambda value: f"{value:,}"
    made.filters["duration"] = shown_duration
    made.filters["moment"] = shown_moment
    made.filters["seconds"] = lambda value: NONE if value is None else f"{value / 1000:g} s"
    return made


def _resource(name: str) -> str:
    # not by path: under spark-submit the package is a zip
    return files("namesrv_spark_jobs.report").joinpath("templates", name).read_text(encoding="utf-8")


def _policy(style: str) -> str:
    """No script, no request, no form; of styles only the one of this page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _lead(read: Mapping[str, Any]) -> str:
    servers = " and ".join(read["nameservers"][:3]) or "no NameServer"
    if len(read["nameservers"]) > 3:  # noqa: PLR2004  # more names than a line has room for
        servers = f"{len(read['nameservers'])} NameServers"
    span = f"{shown_moment(read['from_ms'])} to {shown_moment(read['until_ms'])} UTC"
    files_read = "1 file" if read["files"] == 1 else f"{read['files']:,} files"
    return f"{servers}, {span}, {read['lines']:,} lines in {files_read}"


def _findings(summary: Summary) -> list[Row]:
    """The worst first; when nothing is wrong, that is what comes first."""
    found: list[Row] = list(summary["findings"])
    if any(finding["severity"] in {"critical", "warning"} for finding in found):
        return found
    gone = "stayed longer than the settings allow" if summary["registry"]["all"]["count"] else "went away"
    return [{"severity": "good", "text": f"No broker {gone}, and none was removed by mistake."}, *found]


def _key_figures(summary: Summary) -> Iterator[tuple[str, str, str, str]]:
    """Value, name, the definition that explains it, class."""
    registry, client = summary["registry"], summary["client"]
    false = summary["false_evictions"]["count"]
    yield f"{registry['all']['count']:,}", "brokers removed", "life", ""
    yield shown_duration(registry["all"]["p50"]), "registry staleness, median", "registry", "registry"
    yield shown_duration(registry["all"]["p99"]), "registry staleness, p99", "registry", "registry"
    yield shown_duration(client["all"]["p50"]), "client staleness, median", "client", "client"
    yield shown_duration(client["all"]["p99"]), "client staleness, p99", "client", "client"
    yield f"{registry['over_bound']:,}", "over their bound", "bound", "bad" if registry["over_bound"] else ""
    yield f"{false:,}", "false evictions", "false", "bad" if false else ""
    yield f"{summary['exposed_pulls']['total']:,}", "answers with a dead broker", "pulls", ""
    yield f"{summary['near_misses']['count']:,}", "near misses", "near", ""
    yield shown_duration(summary["divergence"]["total_ms"]), "of divergence", "divergence", ""


def _pictures(summary: Summary, charts: Mapping[str, Any]) -> dict[str, Markup]:
    """The charts by their ids; one that would show nothing is not there."""
    made: dict[str, Callable[[int], Picture]] = {}
    if charts["registry_cdf"] or charts["client_cdf"]:
        drawn = Staleness(charts["registry_cdf"], charts["client_cdf"], charts["bound_ms"], _marks(summary))
        made["staleness-picture"] = lambda width: draw_staleness(drawn, width)
    timeline = charts["timeline"]
    for name, rows in (("picture", timeline["brokers"][:_ROWS]), ("more", timeline["brokers"][_ROWS:])):
        if rows:
            made[f"timeline-{name}"] = lambda width, rows=rows: draw_timeline(rows, timeline, width)  # type: ignore[misc]
    settings = _settings(charts["what_if"])
    if settings:
        made["what-if-picture"] = lambda width: draw_what_if(settings, width)
    if any(item["count"] for item in charts["gaps"]):
        made["gaps-picture"] = lambda width: draw_gaps(charts["gaps"], width)
    return {name: _twice(name, draw) for name, draw in made.items()}


def _twice(name: str, draw: Callable[[int], Picture]) -> Markup:
    """Once for a screen and once for a phone; the page shows the one that fits."""
    sizes = (("wide", WIDE), ("narrow", NARROW))
    # what is drawn is escaped where it is drawn
    return Markup("".join(draw(width).render(f"{name}-{kind}", kind=kind) for kind, width in sizes))  # noqa: S704


def _marks(summary: Summary) -> dict[str, dict[str, float | None]]:
    measured = {"registry": summary["registry"]["all"], "client": summary["client"]["all"]}
    return {kind: {mark: stats[mark] for mark in ("p50", "p99")} for kind, stats in measured.items() if stats["count"]}


def _of_staleness(summary: Summary, charts: Mapping[str, Any]) -> dict[str, object]:
    registry, client, bound = charts["registry_cdf"], charts["client_cdf"], charts["bound_ms"]
    legend = [
        *([("line", "registry", "at the NameServer: last heartbeat to removal")] if registry else []),
        *([("line", "client", "at clients: last heartbeat to the first route without it")] if client else []),
        *([("dash", "bound", f"bound of the settings, {shown_bound(bound)}")] if bound else []),
    ]
    shares = [(f"{share:.0%}", _at(registry, share), _at(client, share)) for share in _SHARES]
    return {"staleness_legend": legend, "shares": shares, "censored": sum(summary["client"]["censored"].values())}


def _at(curve: Sequence[Sequence[float]], share: float) -> float | None:
    # the last point may fall short of 1 by rounding
    return next((ms for ms, reached in curve if reached >= share - 1e-9), None)


def _timeline_legend(timeline: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    legend = [
        ("box", "alive", "alive: first to last heartbeat, or to its goodbye"),
        ("box", "stale", "stale: still registered, but no longer heard"),
    ]
    down = ("box", "down", "the NameServer was not running, or its log is missing")
    return [*legend, down] if any(timeline["down"].values()) else legend


def _of_settings(rows: Sequence[Row]) -> dict[str, object]:
    front = {setting.label for setting in best(_settings(rows))}
    trials = [(row, _policy_name(row), _label(row) in front) for row in rows]
    return {"trials": trials, "evicting": any(row["evictions"] for row in rows), "what_if_legend": _WHAT_IF_LEGEND}


def _settings(rows: Iterable[Row]) -> list[Setting]:
    """The points of the chart; settings that evicted only live brokers have no staleness, and no place in it."""
    return [
        Setting(_label(row), row["policy"], row["false"], row["client"]["p99"])
        for row in rows
        if row["client"]["p99"] is not None
    ]


def _label(row: Row) -> str:
    poll = f"{row['poll_ms'] / 1000:g}"
    if row["policy"] == "logged":
        return f"as logged, poll {poll}"
    what = f"φ{row['phi']:g}" if row["policy"] == "phi" else f"{row['expiry_ms'] / 1000:g}"
    return f"{what}/{row['scan_ms'] / 1000:g}/{poll}"


def _policy_name(row: Row) -> str:
    if row["policy"] == "logged":
        return "as logged"
    return f"φ {row['phi']:g}" if row["policy"] == "phi" else f"expiry {row['expiry_ms'] / 1000:g} s"


def _of_groups(summary: Summary) -> dict[str, object]:
    registry, client, pulls = summary["registry"], summary["client"], summary["exposed_pulls"]
    groups = {
        "NameServer": registry["by_nameserver"],
        "Cluster": registry["by_cluster"],
        "Reason": registry["by_reason"],
        "Topic (at clients)": client["by_topic"],
        "Broker": registry["by_broker"],
        "Client": client["by_client"],
    }
    counts = {
        "False evictions by broker": summary["false_evictions"]["by_broker"],
        "Near misses by broker": summary["near_misses"]["by_broker"],
        "Answers with a dead broker, by broker": pulls["by_broker"],
        "Answers with a dead broker, by topic": pulls["by_topic"],
    }
    divergence = summary["divergence"]["by_broker"]
    return {
        "groups": [(title, _most(rows, lambda row: row["max"] or 0)) for title, rows in groups.items() if rows],
        "counts": [(title, _most(rows, lambda count: count)) for title, rows in counts.items() if rows],
        "divergence": _most(divergence, lambda row: row["total_ms"]),
    }


def _most(rows: Mapping[str, Any], value: Callable[[Any], float]) -> list[tuple[str, Any]]:
    return sorted(rows.items(), key=lambda item: (-value(item[1]), item[0]))


def _of_input(summary: Summary) -> dict[str, object]:
    read, client = summary["input"], summary["client"]
    numbers = {
        "Lines": read["lines"],
        **{words.capitalize(): read[name] for name, words in _UNUSUAL.items()},
        "Files that end too early": read["truncated_files"],
        "Left out by options": read["left_out"],
        "Clients censored: left": client["censored"]["client_gone"],
        "Clients censored: broker returned": client["censored"]["returned"],
        "Clients censored: log ended": client["censored"]["log_end"],
        "Routes of unknown revisions": client["unknown_revisions"],
    }
    odd = [row for row in read["per_file"] if row["truncated"] or any(row[name] for name in _UNUSUAL)]
    columns = [
        ("File", "name"),
        ("Lines", "number"),
        *((words, "number") for words in _UNUSUAL.values()),
        ("", "nowrap"),
    ]
    return {"input_numbers": numbers.items(), "odd_files": odd, "unusual": list(_UNUSUAL), "file_columns": columns}
