"""The picture of the last quarter of an hour, which the overview and the page of a broker have."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from namesrv_console.console import Visit
from namesrv_console.past import timeline_rows
from namesrv_console.state import BrokerKey
from namesrv_console.views.recent import changed_brokers, recent_rows, recent_span
from namesrv_spark_jobs.history.spans import tick_texts

_MOST_BROKERS: Final = 10


def recent_picture(visit: Visit, group: Iterable[BrokerKey] | None = None) -> Mapping[str, Any]:
    """Rows of these brokers, or of those to which something happened last; and the ticks of the axis."""
    cluster, span = visit.cluster, recent_span(round(visit.wall * 1000))
    moment_ms = visit.console.compared.moment_ms
    wanted = changed_brokers(cluster, span, _MOST_BROKERS, moment_ms) if group is None else set(group)
    rows = recent_rows(cluster, wanted, span, moment_ms)
    return {
        "rows": [(timeline_rows.drawn(row, span), ()) for row in rows],
        "ticks": [(timeline_rows.place(at, span), text) for at, text in tick_texts(span)],
    }
