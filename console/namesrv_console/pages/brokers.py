"""Brokers: a line for each with its age on each server, problems first, and the details of one broker group."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.brokers import (
    SHOWS,
    SORTS,
    BrokerQuery,
    broker_page,
    broker_rows,
    connections_of,
    events_of,
    instances_of,
    topics_of,
)
from namesrv_console.views.events import happenings
from namesrv_console.views.heat import HeatMap, heat_map
from namesrv_console.views.recent import recent_picture

_SHOWN_TOPICS = 100
_SHOWN_EVENTS = 50


async def show_all(visit: Visit) -> Content:
    """The brokers that match the query."""
    query = visit.query
    wanted = BrokerQuery(
        cluster=query.get("cluster", ""),
        text=query.get("q", ""),
        show=visit.choice("show", SHOWS),
        sort=visit.choice("sort", SORTS),
        page=visit.number("page"),
    )
    return {
        "wanted": wanted,
        "found": broker_page(visit.cluster, _heat(visit), visit.console.health.report(visit.cluster).problems, wanted),
        # The chosen cluster may have lost its last broker.
        "clusters": sorted({key.cluster for key in visit.cluster.broker_keys} | {wanted.cluster} - {""}),
        "count": len(visit.cluster.broker_keys),
        "shows": SHOWS,
        "kept": visit.kept,
    }


async def show_one(visit: Visit) -> Content:
    """The group that `cluster` and `name` name; the events of a removed group are still shown."""
    cluster_name, name = visit.query.get("cluster", ""), visit.query.get("name", "")
    rows = broker_rows(visit.cluster, _heat(visit), cluster_name, name)
    topics, knows_topics = topics_of(visit.cluster, name)
    moment_ms = visit.console.moment_ms
    events = events_of(visit.cluster, cluster_name, name, moment_ms)
    return {
        "cluster_name": cluster_name,
        "name": name,
        "rows": rows,
        "recent": recent_picture(
            visit.cluster, visit.wall, moment_ms, instances_of(visit.cluster, cluster_name, name, events)
        ),
        "topics": topics[:_SHOWN_TOPICS],
        "topics_count": len(topics),
        "knows_topics": knows_topics,
        "connections": connections_of(rows),
        "knows_connections": all(view.connections is not None for view in visit.cluster.servers),
        "events": happenings(events)[:_SHOWN_EVENTS],
    }


def _heat(visit: Visit) -> HeatMap:
    """The heat map of the registered brokers."""
    return heat_map(visit.cluster, (), visit.console.compared.disagreements(visit.cluster), visit.now)


PAGE = Page(
    "brokers",
    "/brokers",
    "brokers.title",
    show_all,
    parts=("tree",),
    fields=("cluster", "q", "show", "sort", "page"),
    group="brokers",
    key="b",
)
DETAIL = Page(
    "broker",
    "/broker",
    "broker.title",
    show_one,
    parts=("instances", "recent", "topics", "connections", "events"),
    fields=("cluster", "name"),
    group="brokers",
)
