"""Topic: its queues by broker and server, missing queues, the clients that pull its route, and its events."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import RedirectResponse

from namesrv_client.ctl.comparison import PRESENT
from namesrv_console.console import Content, Page, Visit
from namesrv_console.past.asking import Logged
from namesrv_console.views.events import topic_history
from namesrv_console.views.matrix import matrix
from namesrv_console.views.topics import topic_reports
from namesrv_spark_jobs.history.model import RouteRequest
from namesrv_spark_jobs.history.spans import DAY_MS, MINUTE_MS, Span

# Longest wait of the page for the logs; with `wait` in the query the second value.
_LOGS_SECONDS: Final = 0.3
_LONG_LOGS_SECONDS: Final = 25.0


async def show(visit: Visit) -> Content:
    """The topic that the query names; without a name, the list of topics."""
    name, cluster = visit.query.get("name", ""), visit.cluster
    reports = topic_reports(cluster)
    # A peer may have registered a topic with an empty name. A live update has no place for another page.
    if not name and visit.now is not None and not any(each.of(name) for each in reports.values()):
        return RedirectResponse("/topics", 303)
    # With many topics, Apache's server gets a route request only for the topic that is shown.
    unrequested = [server for server, each in reports.items() if each.of(name) is True]
    if unrequested:
        found = await visit.console.responses.of(("route", name), unrequested, lambda server: server.routes([name]))
        for server, routes in found.given.items():
            route = routes[name]
            reports[server] = reports[server]._replace(routes={} if route is None else {name: route})
    reported = {server: each.of(name) for server, each in reports.items()}
    disagreements = visit.console.compared.disagreements(cluster)
    rows = matrix(cluster, reports, name, disagreements)
    awaited_on = next((one.expected_on for one in disagreements if one.key == ("topic", name, PRESENT)), ())
    absent_on = [server for server, route in reported.items() if not route]
    return {
        "name": name,
        "rows": rows,
        "reporting": len(reports),
        # A route may be unknown where the topic is not.
        "knows_queues": len(reports) == len(cluster.servers) and True not in reported.values(),
        "present_on": reported.keys() - set(absent_on),
        "missing_on": [server for server in absent_on if server not in awaited_on],
        "awaited_on": [server for server in absent_on if server in awaited_on],
        "orders": {server: route.order_topic_conf for server, route in reported.items() if not isinstance(route, bool)},
        **await _from_logs(visit, name),
        "has_logs": bool(visit.console.past.logs),
        "history": topic_history(cluster, name, {row.broker_name for row in rows}, visit.console.moment_ms),
    }


async def _from_logs(visit: Visit, topic: str) -> Mapping[str, Any]:
    """Clients that received the topic's route during the last day, None before the logs are read; missing logs."""
    past = visit.console.past
    # A live update sends other parts of the page only.
    if visit.now is None or not past.logs or not topic:
        return {"receivers": None, "missing_logs": []}
    patience_seconds = _LONG_LOGS_SECONDS if "wait" in visit.query else _LOGS_SECONDS
    logged = await past.logged(visit.wall, patience_seconds=patience_seconds)
    if not isinstance(logged, Logged):
        return {"receivers": logged, "missing_logs": []}
    # The span ends at a whole minute, so that requests within one minute are equal.
    to_ms = int(visit.wall * 1000) // MINUTE_MS * MINUTE_MS
    request = RouteRequest(span=Span(to_ms - DAY_MS, to_ms), topic=topic)
    receivers = await past.ask(request, patience_seconds=patience_seconds)
    return {"receivers": receivers, "missing_logs": logged.missing}


PAGE = Page(
    "topic",
    "/topic",
    "topic.title",
    show,
    parts=("summary", "matrix", "history"),
    fields=("name", "wait"),
    group="topics",
)
