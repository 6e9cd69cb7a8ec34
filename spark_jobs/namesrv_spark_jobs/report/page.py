"""The HTML pages of a report and of a comparison: the values for their Jinja2 templates."""

import base64
import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS, PERCENTILES
from namesrv_spark_jobs.report.charts import (
    Setting,
    best,
    heartbeat_intervals,
    lettered,
    percentiles,
    staleness,
    timeline,
    what_if,
    where,
)
from namesrv_spark_jobs.report.drawing import drawn, library
from namesrv_spark_jobs.report.shown import NONE, printable, shown_duration, shown_moment
from namesrv_spark_jobs.report.vega_lite import Chart
from namesrv_spark_jobs.transforms.output_rows import MOST_PERIODS, MOST_ROWS

Summary = Mapping[str, Any]
Row = Mapping[str, Any]

# timeline rows that are shown at once; further ones are folded
_ROWS: Final = 16
# shares in the table of the curves besides the percentiles; each is a point of the curves
_MORE_SHARES: Final = (0.1, 0.25, 0.75, 1.0)
# the percentiles that are shown where space is short: key figures, marks on the curves, other settings
_KEY_PERCENTILES: Final = ("p50", "p99", "p999")
# counts of a file, with their column titles; a file with any of them is listed as unusual
_UNUSUAL: Final = {
    "bad": "bad lines",
    "duplicates": "duplicates",
    "newer_version": "newer version",
    "unknown_events": "unknown events",
    "dropped_by_writers": "dropped by the writer",
    "clock_steps": "clock steps",
}


def page(summary: Summary, charts: Mapping[str, Any]) -> str:
    """The page of one report, from `summary` and `charts` of an `analysis.Analysis`."""
    settings = [
        Setting(_label(row), row["policy"], row["false"], row["client"]["p99"])
        for row in summary["what_if"]
        # settings without a true eviction have no staleness, so the chart cannot show them
        if row["client"]["p99"] is not None
    ]
    curves = {measure: charts[f"{measure}_cdf"] for measure in ("registry", "client")}
    per_file = summary["input"]["per_file"]
    rows = [where(row) for row in charts["timeline"]["brokers"]]
    worst = list(zip(summary["worst"], _places(summary["worst"], rows), strict=True))
    return _rendered(
        "report.html",
        _pictures(summary, charts, settings),
        summary=summary,
        charts=charts,
        letters=lettered(settings),
        places={one["code"]: _shown(one["code"], summary, worst, rows) for one in summary["findings"]},
        worst=worst,
        shares=_shares(summary, curves),
        key_figures=[
            (shown_duration(summary[measure]["all"][field]), _key_figure(measure, field), measure, measure)
            for measure in curves
            for field in _KEY_PERCENTILES
        ],
        key_percentiles=_KEY_PERCENTILES,
        tried=[
            (f"{of} {PERCENTILE_FIELDS[field]}", "number")
            for of in ("NameServer", "Client")
            for field in _KEY_PERCENTILES
        ],
        rows_shown=_ROWS,
        most_rows=MOST_ROWS,
        most_periods=MOST_PERIODS,
        front={setting.label for setting in best(settings)},
        unusual=_UNUSUAL,
        unusual_columns=[(says, "number") for says in _UNUSUAL.values()],
        odd_files=[row for row in per_file if row["truncated"] or any(row[name] for name in _UNUSUAL)],
        percentiles=tuple(PERCENTILE_FIELDS),
        statistics=[(name, "number") for name in (*PERCENTILE_FIELDS.values(), "max")],
        none_sign=NONE,
    )


def comparison_page(made: Mapping[str, Any], names: Mapping[str, str], reports: Mapping[str, str]) -> str:
    """The page of a comparison; `names` has the titles of A and B, `reports` the links to their pages, if any."""
    titles = {"registry": ("At NameServers", "registry"), "client": ("At clients", "client")}
    pictures = {
        f"{name}-picture": percentiles(title, stats["a"], stats["b"], colour)
        for name, (title, colour) in titles.items()
        for stats in [made["percentiles"][name]]
        if stats["a"]["count"] and stats["b"]["count"]
    }
    return _rendered("comparison.html", pictures, made=made, names=names, reports=reports, none_sign=NONE)


def _rendered(template: str, pictures: Mapping[str, Chart], **values: Any) -> str:
    """A page that loads nothing, and whose policy allows only its own style and its own scripts."""
    style = _resource("style.css")
    specs = json.dumps({name: chart.spec for name, chart in pictures.items()}, separators=(",", ":"))
    # without any "<", the data cannot end the script element or begin another one
    data = specs.replace("<", r"\u003c")
    code = [library(), _resource("page.js")] if pictures else [_resource("page.js")]
    allowed = {
        "default-src": "'none'",
        "script-src": " ".join(map(_digest, code)),
        "style-src": _digest(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    scripts = [('type="application/json" id="charts"', data), *(('type="module"', text) for text in code)]
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - a file of this package
            policy="; ".join(f"{name} {value}" for name, value in allowed.items()),
            scripts=[(Markup(kind), Markup(text)) for kind, text in scripts],  # noqa: S704 - ours, or escaped above
            pictures={
                name: {
                    "title": chart.title,
                    "description": chart.description,
                    "svg": Markup(drawn(chart.spec, name)),  # noqa: S704 - Vega escapes what it draws
                }
                for name, chart in pictures.items()
            },
            **values,
        )
    )


def _digest(text: str) -> str:
    """The hash by which a Content-Security-Policy allows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _broker(row: Row) -> str:
    return f"{row['cluster']}/{row['broker_name']}/{row['broker_id']}"


def _places(worst: Sequence[Row], rows: Container[str]) -> list[Row]:
    """The places of the worst intervals: in their table, and in the timeline if their brokers are in it."""
    return [
        {"id": f"worst-{n}", **_span(_broker(row), row["nameserver"], rows, row["last_ok_ms"], row["removed_ms"])}
        for n, row in enumerate(worst, start=1)
    ]


def _span(
    broker: str, nameserver: str | None, rows: Container[str], from_ms: int = 0, to_ms: int = 0
) -> dict[str, Any]:
    """The place of an interval in the timeline, or of a whole row; empty when the broker has no row."""
    name = where({"broker": broker, "nameserver": nameserver or ""})
    return {"where": name, "from_ms": from_ms, "to_ms": to_ms} if name in rows else {}


def _shown(code: str, summary: Summary, worst: Sequence[tuple[Row, Row]], rows: Sequence[str]) -> Row | None:
    """The place that a finding links to: one of the worst intervals, or a part of the timeline."""
    about: dict[str, Callable[[Row], Any]] = {
        "over_bound": lambda row: row["over_bound"],
        "clients_over_bound": lambda row: row["clients_exposed"] and row["upper_ms"],
        "exposed_pulls": lambda row: row["exposed_pulls"],
        "false_evictions": lambda row: row["false_eviction"],
    }
    if code in about and worst:
        row, place = max(worst, key=lambda pair: about[code](pair[0]))
        if about[code](row):
            return place
    if code == "near_misses" and (near := summary["near_misses"]["worst"]):
        return _span(near["broker"], near["nameserver"], rows, near["from_ms"], near["from_ms"] + near["silent_ms"])
    by_broker = {
        "false_evictions": _most(summary["false_evictions"]["by_broker"]),
        "divergence": _most(summary["divergence"]["by_broker"], "total_ms"),
    }
    for broker, _ in by_broker.get(code, []):
        for name in rows:
            if name.startswith(f"{printable(broker)} on "):
                return {"where": name, "from_ms": 0, "to_ms": 0}
    return None


def _environment() -> Environment:
    """The environment of the templates, which escapes every value: names in a log may be hostile."""
    made = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": lambda value: NONE if value is None else f"{value:,}",
        "duration": shown_duration,
        "moment": shown_moment,
        "seconds": lambda value: NONE if value is None else f"{value / 1000:g} s",
        "share": lambda value: f"{value * 100:g}%",
        "label": _label,
        "most": _most,
    }
    return made


def _resource(name: str) -> str:
    # not by a path, since under spark-submit the package is a zip
    return files("namesrv_spark_jobs.report").joinpath("templates", name).read_text(encoding="utf-8")


def _pictures(summary: Summary, charts: Mapping[str, Any], settings: Sequence[Setting]) -> dict[str, Chart]:
    """The charts by their ids, without empty ones."""
    pictures: dict[str, Chart] = {}
    if charts["registry_cdf"] or charts["client_cdf"]:
        measured = {measure: summary[measure]["all"] for measure in ("registry", "client")}
        marks = {
            name: {PERCENTILE_FIELDS[field]: stats[field] for field in _KEY_PERCENTILES}
            for name, stats in measured.items()
            if stats["count"]
        }
        pictures["staleness-picture"] = staleness(charts, marks, summary["bound_ms"])
    brokers = charts["timeline"]["brokers"]
    for name, rows in (("picture", brokers[:_ROWS]), ("more", brokers[_ROWS:])):
        if rows:
            pictures[f"timeline-{name}"] = timeline(rows, charts["timeline"])
    if settings:
        pictures["what-if-picture"] = what_if(settings)
    if any(item["count"] for item in charts["heartbeat_intervals"]):
        pictures["intervals-picture"] = heartbeat_intervals(charts["heartbeat_intervals"])
    return pictures


def _key_figure(measure: str, field: str) -> str:
    """The words below a key figure."""
    return f"{measure} staleness, {'median' if field == 'p50' else PERCENTILE_FIELDS[field]}"


def _shares(summary: Summary, curves: Mapping[str, Sequence[Sequence[float]]]) -> list[tuple[float | None, ...]]:
    """The rows of the table of the curves: a share, and the time by which it was reached, for each curve."""
    fields = dict(zip(PERCENTILES.values(), PERCENTILE_FIELDS, strict=True))
    return [
        # the curves have a point for every half percent only
        (
            share,
            *(summary[name]["all"][fields[share]] if share in fields else _at(curves[name], share) for name in curves),
        )
        for share in sorted({*_MORE_SHARES, *fields})
    ]


def _at(curve: Sequence[Sequence[float]], share: float) -> float | None:
    # the share of the last point may be a little below 1 by rounding
    return next((ms for ms, reached in curve if reached >= share - 1e-9), None)


def _label(row: Row) -> str:
    """The label of a setting: expiry/scan/poll."""
    poll = f"{row['poll_ms'] / 1000:g}"
    if row["policy"] == "logged":
        return f"as logged, poll {poll}"
    return f"{row['expiry_ms'] / 1000:g}/{row['scan_ms'] / 1000:g}/{poll}"


def _most(rows: Mapping[str, Any], by: str | None = None) -> list[tuple[str, Any]]:
    """Groups sorted by their value, or by the field `by` of the value, largest first."""
    return sorted(rows.items(), key=lambda item: (-((item[1] if by is None else item[1][by]) or 0), item[0]))
