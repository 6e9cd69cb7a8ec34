"""The report as one HTML page: what the Jinja2 templates show, and in which order."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from namesrv_spark_jobs.report.charts import NARROW, WIDE, Chart, Setting, best, gaps, staleness, timeline, what_if
from namesrv_spark_jobs.report.shown import NONE, printable, shown_duration, shown_moment

Summary = Mapping[str, Any]
Row = Mapping[str, Any]

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


def page(summary: Summary, charts: Mapping[str, Any]) -> str:
    """The page of one report; both are as `analysis.Analysis` has them.

    It needs nothing from anywhere, and allows nothing but its own style.
    """
    style = _resource("style.css")
    # no script, no request, no form; of styles only the one of this page
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    settings = [
        Setting(_label(row), row["policy"], row["false"], row["client"]["p99"])
        for row in charts["what_if"]
        # settings that evicted only live brokers have no staleness, and no place in the picture
        if row["client"]["p99"] is not None
    ]
    curves = {measure: charts[f"{measure}_cdf"] for measure in ("registry", "client")}
    per_file = summary["input"]["per_file"]
    return (
        _environment()
        .get_template("report.html")
        .render(
            style=Markup(style),  # noqa: S704 - a file of this package
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            summary=summary,
            charts=charts,
            pictures=_pictures(summary, charts, settings),
            shares=[(share, *(_at(curve, share) for curve in curves.values())) for share in _SHARES],
            rows_shown=_ROWS,
            front={setting.label for setting in best(settings)},
            unusual=_UNUSUAL,
            unusual_columns=[(says, "number") for says in _UNUSUAL.values()],
            odd_files=[row for row in per_file if row["truncated"] or any(row[name] for name in _UNUSUAL)],
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
    made.filters |= {
        "count": lambda value: f"{value:,}",
        "duration": shown_duration,
        "moment": shown_moment,
        "seconds": lambda value: NONE if value is None else f"{value / 1000:g} s",
        "share": lambda value: f"{value:.0%}",
        # a coordinate: one decimal is finer than any screen
        "place": lambda value: f"{round(value, 1) + 0:g}",
        "label": _label,
        "most": _most,
    }
    return made


def _resource(name: str) -> str:
    # not by path: under spark-submit the package is a zip
    return files("namesrv_spark_jobs.report").joinpath("templates", name).read_text(encoding="utf-8")


def _pictures(
    summary: Summary, charts: Mapping[str, Any], settings: Sequence[Setting]
) -> dict[str, tuple[str, dict[str, Chart]]]:
    """By its id, what each chart is, and the chart for a screen and for a phone; none that would show nothing."""
    drawn: dict[str, tuple[str, Callable[[int], Chart]]] = {}
    if charts["registry_cdf"] or charts["client_cdf"]:
        measured = {measure: summary[measure]["all"] for measure in ("registry", "client")}
        marks = {
            name: {mark: stats[mark] for mark in ("p50", "p99")} for name, stats in measured.items() if stats["count"]
        }
        drawn["staleness-picture"] = "staleness", partial(staleness, charts, marks)
    brokers = charts["timeline"]["brokers"]
    for name, rows in (("picture", brokers[:_ROWS]), ("more", brokers[_ROWS:])):
        if rows:
            drawn[f"timeline-{name}"] = "timeline", partial(timeline, rows, charts["timeline"])
    if settings:
        drawn["what-if-picture"] = "what_if", partial(what_if, settings)
    if any(item["count"] for item in charts["gaps"]):
        drawn["gaps-picture"] = "gaps", partial(gaps, charts["gaps"])
    return {id_: (kind, {"wide": draw(WIDE), "narrow": draw(NARROW)}) for id_, (kind, draw) in drawn.items()}


def _at(curve: Sequence[Sequence[float]], share: float) -> float | None:
    # the last point may fall short of 1 by rounding
    return next((ms for ms, reached in curve if reached >= share - 1e-9), None)


def _label(row: Row) -> str:
    """A setting in the picture: expiry/scan/poll."""
    poll = f"{row['poll_ms'] / 1000:g}"
    if row["policy"] == "logged":
        return f"as logged, poll {poll}"
    what = f"φ{row['phi']:g}" if row["policy"] == "phi" else f"{row['expiry_ms'] / 1000:g}"
    return f"{what}/{row['scan_ms'] / 1000:g}/{poll}"


def _most(rows: Mapping[str, Any], by: str | None = None) -> list[tuple[str, Any]]:
    """Groups in the order of their numbers, or of this one of them."""
    return sorted(rows.items(), key=lambda item: (-((item[1] if by is None else item[1][by]) or 0), item[0]))
