"""What do the pictures of the page show, and what stands in for them when there is nothing to show?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv_spark_jobs.report.charts.gaps import draw_gaps
from namesrv_spark_jobs.report.charts.staleness import Staleness, draw_staleness, shown_bound
from namesrv_spark_jobs.report.charts.timeline import draw_timeline
from namesrv_spark_jobs.report.html.elements import (
    COMPACT,
    NUMBER,
    Column,
    Html,
    card,
    details,
    element,
    empty,
    figure,
    joined,
    legend,
    table,
)
from namesrv_spark_jobs.times import NONE, shown_duration, shown_moment

Charts = Mapping[str, Any]
# further rows are a click away
_ROWS: Final = 16


def staleness_card(charts: Charts, marks: Mapping[str, Mapping[str, float | None]], censored: int) -> Html:
    """The curves."""
    drawn = Staleness(charts["registry_cdf"], charts["client_cdf"], charts["bound_ms"], marks)
    words = element(
        "p",
        "Of all brokers that went away: the share whose routes were gone by then. "
        "The further to the left a curve rises, the better.",
        kind="note",
    )
    if not drawn.registry and not drawn.client:
        return card("staleness", "Staleness", words, empty("No broker was removed: no route was stale."))
    entries = [("line", "registry", "at the NameServer: last heartbeat to removal")] if drawn.registry else []
    entries += [("line", "client", "at clients: last heartbeat to the first route without it")] if drawn.client else []
    entries += [("dash", "bound", f"bound of the settings, {shown_bound(drawn.bound_ms)}")] if drawn.bound_ms else []
    below = [legend(entries)]
    if censored:
        below.append(
            element(
                "p",
                f"{censored:,} clients never got a new route while the log looked; they are not in the curve.",
                kind="note",
            )
        )
    picture = figure("staleness-picture", lambda width: draw_staleness(drawn, width), below=joined(below))
    return card("staleness", "Staleness", words, picture, details("The same as a table", _curve_table(drawn)))


def _curve_table(drawn: Staleness) -> Html:
    """Both curves at the same shares."""
    shares = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
    rows = [(f"{share:.0%}", _at(drawn.registry, share), _at(drawn.client, share)) for share in shares]
    columns = (Column("Share"), Column("NameServers", NUMBER), Column("Clients", NUMBER))
    return table(columns, rows, caption="Time after which this share of the routes was gone", kind=COMPACT)


def _at(curve: Sequence[tuple[float, float]], share: float) -> str:
    # the last point may fall short of 1 by rounding
    return shown_duration(next((ms for ms, reached in curve if reached >= share - 1e-9), None))


def timeline_card(charts: Charts) -> Html:
    """The lives of brokers."""
    timeline = charts["timeline"]
    rows = timeline["brokers"]
    words = element("p", "Those whose routes were stale for longest come first. All times are UTC.", kind="note")
    if not rows:
        return card("timeline", "Lives of brokers", words, empty("The log tells of no broker."))
    span = timeline["from_ms"], timeline["to_ms"]
    entries = [
        ("box", "alive", "alive: first to last heartbeat"),
        ("box", "stale", "stale: still registered, not heard"),
    ]
    first = figure("timeline-picture", lambda width: draw_timeline(rows[:_ROWS], span, width), below=legend(entries))
    parts = [words, first]
    if len(rows) > _ROWS:
        more = figure("timeline-more", lambda width: draw_timeline(rows[_ROWS:], span, width))
        parts.append(details(f"{len(rows) - _ROWS} more", more))
    parts.append(details("The same as a table", _lives_table(rows)))
    return card("timeline", "Lives of brokers", *parts)


def _lives_table(rows: Sequence[Mapping[str, Any]]) -> Html:
    columns = (
        *(
            Column("Broker", "name"),
            Column("NameServer", "nowrap"),
            Column("From", "time"),
            Column("Last heard", "time"),
        ),
        *(Column("Removed", "time"), Column("Stale", NUMBER), Column("Reason", "nowrap")),
    )
    cells = [_life_cells(row, life) for row in rows for life in row["lives"]]
    return table(columns, cells, caption="Lives, in UTC")


def _life_cells(row: Mapping[str, Any], life: Mapping[str, Any]) -> list[str]:
    is_open = life["reason"] is None
    ended = NONE if is_open else shown_moment(life["to_ms"])
    stale = NONE if is_open else shown_duration(life["to_ms"] - life["last_ok_ms"])
    begun, heard = shown_moment(life["from_ms"]), shown_moment(life["last_ok_ms"])
    return [row["broker"], row["nameserver"], begun, heard, ended, stale, life["reason"] or "open"]


def gaps_card(charts: Charts, near_misses: int) -> Html:
    """How regular heartbeats are."""
    bins = charts["gaps"]
    words = element(
        "p",
        "How long brokers were silent between two heartbeats, as a share of the silence that gets them removed. "
        "Bars beyond two thirds are near misses. Heights are logarithmic.",
        kind="note",
    )
    if not any(item["count"] for item in bins):
        return card("gaps", "Regularity of heartbeats", words, empty("No broker sent two heartbeats in a row."))
    entries = [("box", "bar", "gaps"), ("box", "bar late", f"near misses: {near_misses:,}")]
    picture = figure("gaps-picture", lambda width: draw_gaps(bins, width), below=legend(entries))
    return card("gaps", "Regularity of heartbeats", words, picture, details("The same as a table", _gaps_table(bins)))


def _gaps_table(bins: Sequence[Mapping[str, Any]]) -> Html:
    rows = [(_percent(item), f"{item['count']:,}") for item in bins if item["count"]]
    return table(
        (Column("Share of the expiry"), Column("Gaps", NUMBER)), rows, caption="Gaps between heartbeats", kind=COMPACT
    )


def _percent(item: Mapping[str, Any]) -> str:
    if item["to_pct"] is None:
        return f"over {item['from_pct']:g} %"
    return f"{item['from_pct']:g} to {item['to_pct']:g} %"
