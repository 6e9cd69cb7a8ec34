"""Brokers: all clusters with the age of each instance on each server, and the details of one broker group."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.pages.recent import recent_picture
from namesrv_console.views.brokers import broker_rows, cluster_tree, connections_of, events_of, instances_of, topics_of

_SHOWN_TOPICS = 100
_SHOWN_EVENTS = 50


async def show_all(visit: Visit) -> Content:
    """All clusters, or the one that `cluster` names."""
    tree, wanted = cluster_tree(visit.cluster), visit.query.get("cluster")
    return {"tree": tree if wanted is None else {name: rows for name, rows in tree.items() if name == wanted}}


async def show_one(visit: Visit) -> Content:
    """The group that `cluster` and `name` name; the events of a removed group are still shown."""
    cluster_name, name = visit.query.get("cluster", ""), visit.query.get("name", "")
    rows = broker_rows(visit.cluster, cluster_name, name)
    topics = topics_of(visit.cluster, name)
    return {
        "cluster_name": cluster_name,
        "name": name,
        "rows": rows,
        "recent": recent_picture(visit, group=instances_of(visit.cluster, cluster_name, name)),
        "topics": topics[:_SHOWN_TOPICS],
        "topics_count": len(topics),
        "connections": connections_of(rows),
        "events": events_of(visit.cluster, cluster_name, name)[:_SHOWN_EVENTS],
    }


PAGE = Page("brokers", "/brokers", "brokers.title", show_all, parts=("tree",), group="brokers", key="b")
DETAIL = Page(
    "broker",
    "/broker",
    "broker.title",
    show_one,
    parts=("instances", "recent", "topics", "connections", "events"),
    group="brokers",
)
