"""The list of topics: a row for each topic of all servers, and the page of it that a query selects."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from msgspec import structs

from namesrv_client.ctl.comparison import Difference, differing_facts, perm_text, route_facts
from namesrv_console.state import Cluster, TopicReport
from namesrv_console.views.paging import Paged, on_page
from namesrv_remoting.access import is_system_topic
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import MASTER_ID

TopicKind = Literal["ordinary", "retry", "dead_letter", "system"]

_KINDS: Final[Mapping[str, TopicKind]] = {"%RETRY%": "retry", "%DLQ%": "dead_letter", "%SYS%": "system"}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic in the list; queues are from the server with most brokers, None if no route was requested."""

    name: str
    kind: TopicKind
    brokers: int | None
    read_queues: int | None
    write_queues: int | None
    # Permission on all brokers; `mixed` if the brokers differ.
    perm: str | None
    is_ordered: bool
    # Servers that do not have the topic.
    missing_on: tuple[str, ...]
    # Facts that servers disagree about, apart from the topic's absence.
    differences: tuple[Difference, ...] = ()
    # Number of its brokers (groups) that have no master on any server.
    without_master: int = 0

    @property
    def differs(self) -> bool:
        """True if servers disagree about the topic, or some lack it."""
        return bool(self.missing_on or self.differences)

    def of(self, name: str, kind: TopicKind) -> "TopicRow":
        """The row of another topic with the same routes."""
        differences = tuple(replace(one, name=name) for one in self.differences)
        return replace(self, name=name, kind=kind, differences=differences)


# The reports of each server about one topic, and the row made of them.
_Made = tuple[tuple[TopicRouteData | bool, ...], TopicRow]


@dataclass(frozen=True, slots=True)
class TopicTable:
    """All topics, sorted by name."""

    # The servers that report topics.
    servers: tuple[str, ...] = ()
    rows: tuple[TopicRow, ...] = ()
    # Number of topics that servers disagree about.
    differing: int = 0
    # Name -> the row, and the reports that it was made of.
    made: Mapping[str, _Made] = field(default_factory=dict)


def topic_reports(cluster: Cluster) -> dict[str, TopicReport]:
    """The topics of the reachable servers that have reported them."""
    return {view.address: view.topic_report for view in cluster.servers if view.reports_topics}


def topic_table(reports: Mapping[str, TopicReport], own_names: Collection[str], before: TopicTable) -> TopicTable:
    """The rows of all topics; rows of unchanged topics are taken from the table before.

    `own_names` are the names of clusters and brokers, each of which has a topic of its name.
    """
    servers = tuple(reports)
    known = before.made if before.servers == servers else {}
    system = {*own_names, *(f"{name}_REPLY_TOPIC" for name in own_names)}
    made: dict[str, _Made] = {}
    # Topics on the same brokers share their routes, so that their rows are worked out once: it takes half a millisecond
    # for a hundred brokers on which servers disagree.
    row_of_routes: dict[tuple[int, ...], TopicRow] = {}
    for name in sorted(frozenset[str]().union(*(each.topics for each in reports.values()))):
        reported = tuple(each.of(name) for each in reports.values())
        kind = _kind(name, system)
        entry = known.get(name)
        if entry is None or entry[0] != reported or entry[1].kind != kind:
            routes = tuple(map(id, reported))
            if routes not in row_of_routes:
                row_of_routes[routes] = _row(name, kind, servers, reported)
            entry = reported, row_of_routes[routes].of(name, kind)
        made[name] = entry
    rows = tuple(row for _, row in made.values())
    return TopicTable(servers, rows, sum(row.differs for row in rows), made)


def _kind(name: str, system: Collection[str]) -> TopicKind:
    if name in system or is_system_topic(name):
        return "system"
    if name.startswith("%"):
        return next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "ordinary")
    return "ordinary"


def _row(name: str, kind: TopicKind, servers: Sequence[str], reported: Sequence[TopicRouteData | bool]) -> TopicRow:
    routes = [route for route in reported if not isinstance(route, bool)]
    missing = tuple(server for server, route in zip(servers, reported, strict=True) if route is False)
    if not routes:
        return TopicRow(name, kind, None, None, None, None, is_ordered=False, missing_on=missing)
    fullest = max(routes, key=lambda route: len(route.queue_datas))
    queues = fullest.queue_datas
    perms = {each.perm for each in queues}
    return TopicRow(
        name=name,
        kind=kind,
        brokers=len(queues),
        read_queues=sum(each.read_queue_nums for each in queues),
        write_queues=sum(each.write_queue_nums for each in queues),
        perm=perm_text(perms.pop()) if len(perms) == 1 else "mixed",
        is_ordered=fullest.order_topic_conf is not None,
        missing_on=missing,
        differences=()
        if all(routes[0] is other or routes[0] == other for other in routes[1:])
        else _differences(
            name, {server: each for server, each in zip(servers, reported, strict=True) if not isinstance(each, bool)}
        ),
        without_master=_without_master(routes),
    )


def _without_master(routes: Sequence[TopicRouteData]) -> int:
    groups = [group for route in routes for group in route.broker_datas]
    lacking = {(group.cluster, group.broker_name) for group in groups if MASTER_ID not in group.broker_addrs}
    # Nearly always empty, and a server may have ten thousand topics on a hundred brokers.
    if not lacking:
        return 0
    return len(lacking - {(group.cluster, group.broker_name) for group in groups if MASTER_ID in group.broker_addrs})


def _differences(name: str, routes: Mapping[str, TopicRouteData]) -> tuple[Difference, ...]:
    """The differences between the routes; the order in which servers list brokers does not matter."""
    queues = [{each.broker_name: each for each in route.queue_datas} for route in routes.values()]
    odd = {
        broker
        for broker in frozenset[str]().union(*queues)
        if any(each.get(broker) != queues[0].get(broker) for each in queues)
    }
    # Brokers on which all servers agree are left out: they are the most, and making facts of them takes longer.
    facts = {
        server: route_facts(
            structs.replace(route, queue_datas=[each for each in route.queue_datas if each.broker_name in odd])
        )
        for server, route in routes.items()
    }
    return tuple(Difference("topic", name, fact, values) for fact, values in differing_facts(facts).items())


# -- the page that a query selects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """Filter, order and page of the list of topics."""

    text: str = ""
    show: str = "all"
    shows_system: bool = False
    sort: str = "name"
    is_descending: bool = False
    page: int = 1
    starred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicPage(Paged[TopicRow]):
    """One page of the rows that a query selects."""

    # Number of system topics that were left out.
    hidden: int


_SORTS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "brokers": lambda row: row.brokers or 0,
    "read": lambda row: row.read_queues or 0,
    "write": lambda row: row.write_queues or 0,
    "perm": lambda row: row.perm or "",
    "no_master": lambda row: row.without_master,
    "differs": lambda row: (row.differs, len(row.missing_on)),
}
_SHOWN: Final[Mapping[str, Callable[[TopicRow, frozenset[str]], bool]]] = {
    "all": lambda _row, _starred: True,
    "differing": lambda row, _: row.differs,
    "no_master": lambda row, _: row.without_master > 0,
    "starred": lambda row, starred: row.name in starred,
    "ordered": lambda row, _: row.is_ordered,
}
SORTS: Final = tuple(_SORTS)
SHOWS: Final = tuple(_SHOWN)


def topic_page(table: TopicTable, query: TopicQuery) -> TopicPage:
    """The rows that a query selects: starred ones first, then in the query's order, equal ones by name.

    Raises KeyError for an unknown sort or filter.
    """
    text, is_shown, key = query.text.strip().casefold(), _SHOWN[query.show], _SORTS[query.sort]
    rows = [row for row in table.rows if text in row.name.casefold() and is_shown(row, query.starred)]
    found = len(rows)
    if not query.shows_system:
        rows = [row for row in rows if row.kind != "system"]
    rows.sort(key=key, reverse=query.is_descending)
    if query.starred:
        rows.sort(key=lambda row: row.name not in query.starred)
    shown = on_page(rows, query.page)
    return TopicPage(shown.rows, shown.count, shown.page, shown.pages, hidden=found - len(rows))
