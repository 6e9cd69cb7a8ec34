"""The list of topics: a row for each, of all servers, and the part of it that somebody looks at."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from namesrv_client.ctl.comparison import perm_text, route_facts
from namesrv_console.state import Cluster, ServerView
from namesrv_remoting.access import is_system_topic
from namesrv_remoting.bodies.route import TopicRouteData

TopicKind = Literal["ordinary", "retry", "dead_letter", "system"]
Routes = Mapping[str, TopicRouteData]

# rows of one page: what a person reads, and what is sent anew when something changes
PAGE_ROWS: Final = 100
_KINDS: Final[Mapping[str, TopicKind]] = {"%RETRY%": "retry", "%DLQ%": "dead_letter", "%SYS%": "system"}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic in the list; its queues as the server has them that knows of most brokers."""

    name: str
    kind: TopicKind
    brokers: int
    read_queues: int
    write_queues: int
    # of all brokers, `mixed` if they are not the same
    perm: str
    is_ordered: bool
    # servers that do not have it
    missing_on: tuple[str, ...]
    # whether servers disagree about it, also by not having it
    differs: bool


# what each server says of one topic, None if it does not have it; and what follows
_Made = tuple[tuple[TopicRouteData | None, ...], TopicRow]


@dataclass(frozen=True, slots=True)
class TopicTable:
    """All topics by name, in order."""

    # those whose routes are known
    servers: tuple[str, ...] = ()
    rows: tuple[TopicRow, ...] = ()
    # how many topics servers disagree about
    differing: int = 0
    # name -> its row, and what it was made of
    made: Mapping[str, _Made] = field(default_factory=dict)


def known_routes(cluster: Cluster) -> dict[str, Routes]:
    """The routes of each server that can be compared: it answers, and was asked for them."""
    return {view.address: view.routes for view in cluster.servers if _tells_routes(view)}


def _tells_routes(view: ServerView) -> bool:
    if not view.is_reachable or "routes" in view.refused:
        return False
    if view.info is None:
        # it has a topic for each of its brokers, so that without any it was not asked yet
        return bool(view.routes)
    return bool(view.routes_revision) or not view.info.revision


def topic_table(routes: Mapping[str, Routes], own_names: Collection[str], before: TopicTable) -> TopicTable:
    """The rows of all topics; those of topics that have not changed are taken from the table before.

    `own_names` are those of clusters and brokers, each of which has a topic of its name.
    """
    servers, told = tuple(routes), tuple(routes.values())
    known = before.made if before.servers == servers else {}
    system = {*own_names, *(f"{name}_REPLY_TOPIC" for name in own_names)}
    made: dict[str, _Made] = {}
    for name in sorted(frozenset[str]().union(*told)):
        said = tuple(each.get(name) for each in told)
        kind = _kind(name, system)
        entry = known.get(name)
        if entry is None or entry[0] != said or entry[1].kind != kind:
            entry = said, _row(name, kind, servers, said)
        made[name] = entry
    rows = tuple(row for _, row in made.values())
    return TopicTable(servers, rows, sum(row.differs for row in rows), made)


def _kind(name: str, system: Collection[str]) -> TopicKind:
    if name in system or is_system_topic(name):
        return "system"
    if name.startswith("%"):
        return next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "ordinary")
    return "ordinary"


def _row(name: str, kind: TopicKind, servers: Sequence[str], said: Sequence[TopicRouteData | None]) -> TopicRow:
    routes = [route for route in said if route is not None]
    missing = tuple(server for server, route in zip(servers, said, strict=True) if route is None)
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
        differs=bool(missing) or any(not _is_same(routes[0], other) for other in routes[1:]),
    )


def _is_same(one: TopicRouteData, other: TopicRouteData) -> bool:
    """Whether two servers say the same of a topic; in which order its brokers are is no difference."""
    return one is other or one == other or route_facts(one) == route_facts(other)


# -- the part that somebody looks at -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """What somebody wants to see of the list."""

    text: str = ""
    show: str = "all"
    shows_system: bool = False
    sort: str = "name"
    is_descending: bool = False
    page: int = 1
    starred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One page of the rows that a query asks for."""

    rows: Sequence[TopicRow]
    # of all pages
    count: int
    page: int
    pages: int
    # system topics that were left out
    hidden: int


_SORTS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "brokers": lambda row: row.brokers,
    "read": lambda row: row.read_queues,
    "write": lambda row: row.write_queues,
    "perm": lambda row: row.perm,
    "differs": lambda row: (row.differs, len(row.missing_on)),
}
_SHOWN: Final[Mapping[str, Callable[[TopicRow, frozenset[str]], bool]]] = {
    "all": lambda _row, _starred: True,
    "differing": lambda row, _: row.differs,
    "starred": lambda row, starred: row.name in starred,
    "ordered": lambda row, _: row.is_ordered,
}
SORTS: Final = tuple(_SORTS)
SHOWS: Final = tuple(_SHOWN)


def topic_page(table: TopicTable, query: TopicQuery) -> TopicPage:
    """The rows that are asked for: starred ones first, then as they are to be sorted, equal ones by name.

    Raises KeyError for a sort or a choice that there is not.
    """
    text, is_shown, key = query.text.strip().casefold(), _SHOWN[query.show], _SORTS[query.sort]
    rows = [row for row in table.rows if text in row.name.casefold() and is_shown(row, query.starred)]
    found = len(rows)
    if not query.shows_system:
        rows = [row for row in rows if row.kind != "system"]
    rows.sort(key=key, reverse=query.is_descending)
    if query.starred:
        rows.sort(key=lambda row: row.name not in query.starred)
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(1, query.page), pages)
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return TopicPage(shown, len(rows), page, pages, hidden=found - len(rows))
