"""What does the page say first? What was found, and the numbers that everyone asks for."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from namesrv_spark_jobs.report.html.elements import Html, element, joined
from namesrv_spark_jobs.times import shown_duration, shown_moment

Summary = Mapping[str, Any]
# a word beside the colour: not everyone sees colours
_WORDS: Final = {"critical": "Critical", "warning": "Warning", "info": "Note", "good": "Good"}


def lead(summary: Summary) -> Html:
    """Of what the report is."""
    read = summary["input"]
    servers = " and ".join(read["nameservers"][:3]) or "no NameServer"
    if len(read["nameservers"]) > 3:  # noqa: PLR2004  # more names than a line has room for
        servers = f"{len(read['nameservers'])} NameServers"
    span = f"{shown_moment(read['from_ms'])} to {shown_moment(read['until_ms'])} UTC"
    return joined([f"{servers}, {span}, from {read['lines']:,} lines in {_files(read['files'])}"])


def _files(number: int) -> str:
    return "one file" if number == 1 else f"{number:,} files"


def findings(summary: Summary) -> Html:
    """The worst first; when nothing is wrong, that is what comes first."""
    found = [(finding["severity"], finding["text"]) for finding in summary["findings"]]
    if not any(severity in {"critical", "warning"} for severity, _ in found):
        found.insert(0, ("good", _calm(summary)))
    entries = (
        element("li", joined([element("span", _WORDS[severity], kind="severity"), element("span", text, kind="says")]),
                kind=f"finding {severity}")
        for severity, text in found
    )  # fmt: skip
    return element("ul", joined(entries), kind="findings", aria_label="Findings")


def _calm(summary: Summary) -> str:
    if not summary["registry"]["all"]["count"]:
        return "No broker went away, and none was removed by mistake."
    return "No broker stayed longer than the settings allow, and none was removed by mistake."


def figures(summary: Summary) -> Html:
    """The key figures; each name leads to what it means."""
    return element("dl", joined(_figure(*figure) for figure in _key_figures(summary)), kind="figures")


def _key_figures(summary: Summary) -> Iterator[tuple[str, str, str, str]]:
    """Value, name, the term that explains it, class."""
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


def _figure(value: str, name: str, term: str, kind: str) -> Html:
    named = element("dt", element("a", name, href=f"#term-{term}"))
    return element("div", joined([named, element("dd", value, kind=kind)]))
