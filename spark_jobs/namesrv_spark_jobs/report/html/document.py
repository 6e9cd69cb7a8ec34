"""How is the page put together? Findings first, then what they rest on."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

from namesrv_spark_jobs.report.html.elements import Html, element, joined
from namesrv_spark_jobs.report.html.headline import figures, findings, lead
from namesrv_spark_jobs.report.html.pictures import gaps_card, staleness_card, timeline_card
from namesrv_spark_jobs.report.html.settings_compared import what_if_card
from namesrv_spark_jobs.report.html.tables import groups_card, input_card, worst_card
from namesrv_spark_jobs.report.html.terms import terms_card

_TITLE: Final = "How long stale routes lasted"
_MARKS: Final = ("p50", "p99")
_CHAPTERS: Final = {
    "staleness": "Staleness",
    "timeline": "Lives of brokers",
    "what-if": "Other settings",
    "worst": "Worst intervals",
    "gaps": "Heartbeats",
    "groups": "By group",
    "input": "Input",
    "terms": "What the words mean",
}


def document(summary: Mapping[str, Any], charts: Mapping[str, Any]) -> str:
    """The page of one report; both are as `analysis.Analysis` has them."""
    measured = {"registry": summary["registry"]["all"], "client": summary["client"]["all"]}
    marks = {kind: {mark: stats[mark] for mark in _MARKS} for kind, stats in measured.items() if stats["count"]}
    return page(
        _TITLE,
        lead(summary),
        findings(summary),
        element("section", figures(summary), aria_label="Key figures"),
        _chapters(),
        staleness_card(charts, marks, sum(summary["client"]["censored"].values())),
        timeline_card(charts),
        what_if_card(charts["what_if"], summary["as_logged"]),
        worst_card(charts["worst"]),
        gaps_card(charts, summary["near_misses"]["count"]),
        groups_card(summary),
        input_card(summary),
        terms_card(),
    )


def _chapters() -> Html:
    links = (element("a", title, href=f"#{name}") for name, title in _CHAPTERS.items())
    return element("nav", joined(links), aria_label="Contents")


def page(title: str, lead: object, *sections: object) -> str:
    """A whole document that needs nothing from anywhere, and allows nothing but its own style."""
    style = files("namesrv_spark_jobs.report.html").joinpath("style.css").read_text(encoding="utf-8")
    header = element("header", joined([element("h1", title), element("p", lead, kind="lead")]))
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_policy(style))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body>{header}{element('main', joined(sections))}{_footer()}</body></html>\n"
    )


def _policy(style: str) -> str:
    """No script, no request, no form; of styles only the one of this page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _footer() -> Html:
    return element(
        "footer",
        "Made by namesrv-staleness. This file is complete: it loads nothing and runs nothing. "
        "The same numbers for machines are in summary.json and metrics.csv beside it.",
    )
