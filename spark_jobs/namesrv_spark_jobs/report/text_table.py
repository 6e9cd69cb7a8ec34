"""What the command prints: the numbers that people ask for first, or all of them as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from namesrv_spark_jobs.report.shown import printable, shown_duration, shown_moment

Summary = Mapping[str, Any]
_COLUMNS: Final = ("count", "p50", "p90", "p95", "p99", "max")


def as_json(summary: Summary) -> str:
    """A value as summary.json has it: the same value gives the same bytes, and no terminal obeys any of them."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True)
    # everything outside of strings is printable, but for the ends of lines
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text) + "\n"


def as_table(summary: Summary, out: Path) -> str:
    """Distributions, counts and findings, and where the rest is."""
    read = summary["input"]
    servers = ", ".join(printable(name) for name in read["nameservers"]) or "no NameServer"
    lines = [
        f"{servers}: {shown_moment(read['from_ms'])} to {shown_moment(read['until_ms'])} UTC",
        "",
        *_aligned([("STALENESS", "COUNT", "P50", "P90", "P95", "P99", "MAX"), *_distributions(summary)]),
        "",
        *_aligned(list(_counts(summary)), first_right=False),
        "",
        *(f"{finding['severity'].upper():<9}{printable(finding['text'])}" for finding in summary["findings"]),
        "",
        f"{out / 'report.html'}",
    ]
    return "\n".join(lines) + "\n"


def _distributions(summary: Summary) -> Iterator[tuple[str, ...]]:
    rows = {
        "at NameServers": summary["registry"]["all"],
        "  at least": summary["registry"]["lower"],
        "at clients": summary["client"]["all"],
    }
    for name, stats in rows.items():
        yield name, f"{stats['count']:,}", *(shown_duration(stats[column]) for column in _COLUMNS[1:])


def _counts(summary: Summary) -> Iterator[tuple[str, str]]:
    client = summary["client"]
    yield "bound of the settings", shown_duration(summary["bound_ms"])
    yield "over their bound", f"{summary['registry']['over_bound']:,}"
    yield "false evictions", f"{summary['false_evictions']['count']:,}"
    yield "near misses", f"{summary['near_misses']['count']:,}"
    yield "clients exposed", f"{client['exposed']:,} ({sum(client['censored'].values()):,} censored)"
    yield "answers with a dead broker", f"{summary['exposed_pulls']['total']:,}"
    yield "divergence", f"{summary['divergence']['episodes']:,}, {shown_duration(summary['divergence']['total_ms'])}"


def _aligned(rows: Sequence[Sequence[str]], *, first_right: bool = True) -> list[str]:
    """Columns under each other; all but the first to the right, unless it is words that follow."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    shown = []
    for row in rows:
        rest = [cell.rjust(width) if first_right else cell for cell, width in zip(row[1:], widths[1:], strict=True)]
        shown.append("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
    return shown
