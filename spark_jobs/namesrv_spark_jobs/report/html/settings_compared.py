"""How does the page show what other settings would have done?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.report.charts.what_if import Setting, best, draw_what_if
from namesrv_spark_jobs.report.html.elements import (
    NUMBER,
    Column,
    Html,
    card,
    details,
    element,
    empty,
    figure,
    legend,
    table,
)
from namesrv_spark_jobs.times import NONE, shown_duration

Row = Mapping[str, Any]
_WORDS: Final = (
    "The same heartbeats, replayed under other settings: what a client would have met (p99, including its wait for the "
    "next poll) against how many living brokers would have been thrown out. Down and left is better. "
    "Labels are expiry/scan/poll in seconds; \N{GREEK SMALL LETTER PHI} is the threshold of an accrual detector "
    "in place of an expiry."
)


def what_if_card(rows: Sequence[Row], as_logged: Mapping[str, Any]) -> Html:
    """The same heartbeats under each setting of the grid."""
    words = element("p", _WORDS, kind="note")
    if not any(row["evictions"] for row in rows):
        return _card(words, empty("Under none of the settings was a broker silent for too long."))
    settings = [setting for row in rows if (setting := _setting(row)) is not None]
    told = (_replayed(as_logged), details("All settings as a table", _table(rows)))
    if not settings:
        return _card(words, empty("Whom these settings would have evicted was alive: there is no staleness."), *told)
    entries = [
        ("dot", "logged", "as logged"),
        ("dot", "fixed", "a fixed expiry"),
        ("dot", "phi", "accrual detector"),
        ("line", "front", "the best to choose from"),
    ]
    picture = figure("what-if-picture", lambda width: draw_what_if(settings, width), below=legend(entries))
    return _card(words, picture, *told)


def _card(*content: Html) -> Html:
    return card("what-if", "Other settings", *content)


def _replayed(as_logged: Mapping[str, Any]) -> Html:
    """Whether the replay can be believed."""
    logged = f"{as_logged['logged']:,}"
    if as_logged["exact"]:
        says = f"Replayed under the logged settings, all {logged} evictions for silence come out at the same scan."
    else:
        wrong = f"{as_logged['missing']:,} of {logged} evictions are missing, {as_logged['extra']:,} are extra"
        moved = f"{as_logged['other_scan']:,} are at another scan"
        says = f"Replayed under the logged settings, {wrong} and {moved}: take the others with care."
    return element("p", says, kind="note")


def _setting(row: Row) -> Setting | None:
    """A setting under which nothing was evicted truly has no staleness, and no place in the picture."""
    staleness = row["client"]["p99"]
    if staleness is None:
        return None
    return Setting(_label(row), row["policy"], row["false"], staleness)


def _label(row: Row) -> str:
    poll = f"{row['poll_ms'] / 1000:g}"
    if row["policy"] == "logged":
        return f"as logged, poll {poll}"
    what = f"φ{row['phi']:g}" if row["policy"] == "phi" else f"{row['expiry_ms'] / 1000:g}"
    return f"{what}/{row['scan_ms'] / 1000:g}/{poll}"


def _table(rows: Sequence[Row]) -> Html:
    columns = (
        *(Column("Policy", "nowrap"), Column("Scan", NUMBER), Column("Poll", NUMBER), Column("Evictions", NUMBER)),
        *(Column("False", NUMBER), Column("NameServer p50", NUMBER), Column("NameServer p99", NUMBER)),
        *(Column("Client p50", NUMBER), Column("Client p99", NUMBER), Column("")),
    )
    front = {setting.label for setting in best(filter(None, map(_setting, rows)))}
    cells = [_cells(row, is_best=_label(row) in front) for row in rows]

    def row_kind(index: int) -> str:
        return "logged" if rows[index]["policy"] == "logged" else ""

    return table(columns, cells, caption="Every setting that was tried", row_kind=row_kind)


def _cells(row: Row, *, is_best: bool) -> list[object]:
    policy = {
        "logged": "as logged",
        "fixed": f"expiry {(row['expiry_ms'] or 0) / 1000:g} s",
        "phi": f"φ {row['phi'] or 0:g}",
    }[row["policy"]]
    scan = NONE if row["scan_ms"] is None else f"{row['scan_ms'] / 1000:g} s"
    registry, client = row["registry"], row["client"]
    staleness = [shown_duration(value) for value in (registry["p50"], registry["p99"], client["p50"], client["p99"])]
    tag = element("span", "choose from", kind="tag plain") if is_best else ""
    return [policy, scan, f"{row['poll_ms'] / 1000:g} s", f"{row['evictions']:,}", f"{row['false']:,}", *staleness, tag]
