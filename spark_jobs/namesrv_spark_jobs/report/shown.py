"""Durations, moments and names as text for people, and the output of the command as a table or as JSON."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from namesrv_spark_jobs.percentiles import PERCENTILE_FIELDS

# the text for a missing value
NONE: Final = "\N{EN DASH}"
# durations up to five minutes are shown in seconds: 160 s
_IN_SECONDS_MS: Final = 300_000
# the last column of a comparison
_JUDGED: Final = {"better": "better", "worse": "WORSE", "few": "too few to judge"}
_SECOND_MS: Final = 1000
_IN_HOURS_MS: Final = 3_600_000
_IN_DAYS_MS: Final = 172_800_000


def printable(text: str) -> str:
    """A name from a log, with control characters, which a terminal or a browser would obey, as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 line`, `2 lines`; an irregular plural has to be given."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def shown_duration(ms: float | None) -> str:
    """A duration in about three digits: `640 ms`, `4.2 s`, `118 s`, `3 min 20 s`, `2 h 5 min`; a dash for None."""
    if ms is None:
        return NONE
    if ms < _SECOND_MS:
        return f"{ms:.0f} ms"
    if ms < _IN_SECONDS_MS:
        # 99.95 would be shown as 100.0
        return f"{ms / 1000:.1f} s" if ms < 99_950 else f"{ms / 1000:.0f} s"  # noqa: PLR2004
    if ms >= _IN_DAYS_MS:
        return f"{ms / 86_400_000:.1f} d"
    if round(ms / 1000) * 1000 < _IN_HOURS_MS:
        return _pair(round(ms / 1000), "min", "s")
    return _pair(round(ms / 60_000), "h", "min")


def _pair(small: int, whole: str, part: str) -> str:
    """`3 min 20 s`, and `3 min` when no seconds are left."""
    wholes, parts = divmod(small, 60)
    return f"{wholes} {whole} {parts} {part}" if parts else f"{wholes} {whole}"


def shown_moment(ms: int | None) -> str:
    """A moment in UTC, to the second; a dash for None."""
    if ms is None:
        return NONE
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_json(summary: Mapping[str, Any]) -> str:
    """The JSON of a value as in summary.json: equal values give equal bytes, and control characters are escaped."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True)
    # outside of strings, only line ends are not printable
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text) + "\n"


def as_table(summary: Mapping[str, Any], out: Path) -> str:
    """Distributions, counts and findings as text, and the path of the page."""
    read, registry, client = summary["input"], summary["registry"], summary["client"]
    divergence, censored = summary["divergence"], sum(client["censored"].values())
    rows = {"at NameServers": registry["all"], "  at least": registry["lower"], "at clients": client["all"]}
    columns = {**PERCENTILE_FIELDS, "max": "max"}
    distributions = [
        ("STALENESS", "COUNT", *(name.upper() for name in columns.values())),
        *(
            (name, f"{stats['count']:,}", *(shown_duration(stats[column]) for column in columns))
            for name, stats in rows.items()
        ),
    ]
    counts = {
        "bound of the settings": shown_duration(summary["bound_ms"]),
        "over their bound": f"{registry['over_bound']:,}",
        "false evictions": f"{summary['false_evictions']['count']:,}",
        "near misses": f"{summary['near_misses']['count']:,}",
        "exposures of clients": f"{client['exposed']:,} ({censored:,} censored)",
        "responses with a dead broker": f"{summary['exposed_pulls']['total']:,}",
        "divergence": f"{divergence['episodes']:,}, {shown_duration(divergence['total_ms'])}",
    }
    servers = ", ".join(printable(name) for name in read["nameservers"]) or "no NameServer"
    lines = [
        f"{servers}: {_span(read)}",
        "",
        *_aligned(distributions),
        "",
        *(f"{name:<{max(map(len, counts))}}  {count}" for name, count in counts.items()),
        "",
        *(f"{finding['severity'].upper():<9}{printable(finding['text'])}" for finding in summary["findings"]),
        "",
        f"{out / 'report.html'}",
    ]
    return "\n".join(lines) + "\n"


def as_comparison(made: Mapping[str, Any], names: Mapping[str, str], out: Path) -> str:
    """Measures and verdict of a comparison as text, and the path of the page."""

    def cell(value: float | None, unit: str) -> str:
        return NONE if value is None else shown_duration(value) if unit == "ms" else f"{value:,}"

    rows = [
        ("MEASURE", "A", "B", ""),
        *(
            (row["measure"], cell(row["a"], row["unit"]), cell(row["b"], row["unit"]), _JUDGED.get(row["judged"], ""))
            for row in made["measures"]
        ),
    ]
    lines = [
        *(f"{side.upper()}: {printable(names[side])}, {_span(made[side])}" for side in ("a", "b")),
        "",
        *_aligned(rows),
        "",
        *(
            f"{finding['severity'].upper():<9}new in B: {printable(finding['text'])}"
            for finding in made["findings"]["new"]
        ),
        made["says"],
        "",
        f"{out / 'comparison.html'}",
    ]
    return "\n".join(lines) + "\n"


def _span(read: Mapping[str, Any]) -> str:
    return f"{shown_moment(read['from_ms'])} to {shown_moment(read['until_ms'])} UTC"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: the first column aligned to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        ).rstrip()
        for first, *rest in rows
    ]
