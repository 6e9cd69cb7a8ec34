"""Topic: its queues by broker and server, what is missing where, and what happened to it."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.history import topic_history
from namesrv_console.views.matrix import matrix
from namesrv_console.views.topics import Told, told_topics


async def show(visit: Visit) -> Content:
    """The topic that the address names."""
    name, cluster = visit.query.get("name", ""), visit.cluster
    told = told_topics(cluster)
    # Apache's server is asked for the routes of many topics only as they are looked at
    unasked = [server for server, each in told.items() if each.of(name) is True]
    if unasked:
        found = await visit.console.asked.of(("route", name), unasked, lambda server: server.routes([name]))
        for server, routes in found.given.items():
            route = routes[name]
            told[server] = Told(told[server].topics, {} if route is None else {name: route})
    rows = matrix(cluster, told, name)
    having = {server for server, each in told.items() if each.of(name)}
    return {
        "name": name,
        "rows": rows,
        "having": having,
        "lacking": [server for server in told if server not in having],
        "orders": {server: each.routes[name].order_topic_conf for server, each in told.items() if name in each.routes},
        "history": topic_history(cluster, name, {row.broker_name for row in rows}),
    }


PAGE = Page("topic", "/topic", "topic.title", show, parts=("summary", "matrix", "history"), in_menu=False)
