"""The brokers of all servers: each instance as each server sees it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_client.health import Problem, subject_of
from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_console.views.events import newest_first
from namesrv_console.views.heat import HeatCell, HeatMap
from namesrv_console.views.paging import Paged, on_page
from namesrv_console.views.problems import WORST_FIRST, worst, worst_by
from namesrv_console.views.topics import topic_reports
from namesrv_remoting.bodies.extensions import Connection, Event
from namesrv_remoting.codes import PERM_WRITE
from namesrv_remoting.health import Level


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One instance, on each server."""

    key: BrokerKey
    cells: Sequence[HeatCell]
    # Servers on which all its topics are read-only, although no operator removed its write permission: it is about to
    # leave.
    drained_on: frozenset[str]

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses of the broker; more than one where servers disagree."""
        return sorted({cell.seen.live.broker_addr for cell in self.cells if cell.seen is not None})

    @property
    def versions(self) -> Sequence[int]:
        """The counters of the broker's data version; more than one where servers differ."""
        versions = (cell.seen.live.data_version for cell in self.cells if cell.seen is not None)
        return sorted({version.counter for version in versions if version is not None})


@dataclass(frozen=True, slots=True)
class ListedBroker:
    """One line of the list of brokers."""

    row: BrokerRow
    # Level of the worst problem of the broker or its group; unknown if no server reports the broker now.
    level: Level


_SORTS: Final[Mapping[str, Callable[[ListedBroker], Any]]] = {
    # Problems first.
    "health": lambda one: (WORST_FIRST.index(one.level), one.row.key),
    "cluster": lambda one: one.row.key,
    "broker": lambda one: (one.row.key.broker_name, one.row.key),
    "address": lambda one: (one.row.addresses, one.row.key),
    # The lowest version first: it has missed changes.
    "versions": lambda one: (one.row.versions, one.row.key),
}
SORTS: Final = tuple(_SORTS)
SHOWS: Final = ("all", "problems")


@dataclass(frozen=True, slots=True)
class BrokerQuery:
    """Filter, order and page of the brokers: a cluster, a text in name or address."""

    cluster: str = ""
    text: str = ""
    show: str = "all"
    sort: str = "health"
    page: int = 1


def broker_page(
    cluster: Cluster, heat: HeatMap, problems: Iterable[Problem], query: BrokerQuery
) -> Paged[ListedBroker]:
    """The brokers of a heat map that match a query. Raises KeyError for an unknown sort."""
    levels = worst_by(lambda one: one.subject, problems)
    names = [name for name in heat if query.cluster in ("", name)]
    rows = (row for name in names for row in _rows(cluster, name, heat[name]))
    listed = (ListedBroker(row, _level(row, levels)) for row in rows)
    wanted = query.text.strip().casefold()
    found = [
        one
        for one in listed
        if (query.show == "all" or one.level != "good")
        and wanted in f"{one.row.key.broker_name} {' '.join(one.row.addresses)}".casefold()
    ]
    found.sort(key=_SORTS[query.sort])
    return on_page(found, query.page)


def _level(row: BrokerRow, levels: Mapping[str, Level]) -> Level:
    """The worst level of the broker, of its group, and of its reports."""
    subjects = subject_of(row.key), subject_of(row.key[:2])
    reported: Level = "good" if any(cell.is_reported for cell in row.cells) else "unknown"
    return worst([reported, *(levels[subject] for subject in subjects if subject in levels)])


def broker_rows(cluster: Cluster, heat: HeatMap, cluster_name: str, broker_name: str) -> list[BrokerRow]:
    """The instances of one group in a heat map."""
    group = heat.get(cluster_name, {}).get(broker_name)
    return [] if group is None else list(_rows(cluster, cluster_name, {broker_name: group}))


def writable_brokers(view: ServerView) -> frozenset[str]:
    """The groups with a writable topic."""
    # Equal routes are one object, so each is looked at once.
    distinct = {id(route): route for route in view.topic_report.routes.values()}
    return frozenset(
        queues.broker_name for route in distinct.values() for queues in route.queue_datas if queues.perm & PERM_WRITE
    )


def _rows(
    cluster: Cluster, cluster_name: str, groups: Mapping[str, Mapping[int, Sequence[HeatCell]]]
) -> Iterator[BrokerRow]:
    writable = {view.address: writable_brokers(view) for view in cluster.servers}
    for broker_name, instances in groups.items():
        for number, cells in instances.items():
            read_only = [cell for cell in cells if broker_name not in writable[cell.view.address]]
            drained_on = frozenset(cell.view.address for cell in read_only if _is_drained(cell))
            yield BrokerRow(BrokerKey(cluster_name, broker_name, number), cells, drained_on)


def _is_drained(cell: HeatCell) -> bool:
    """True if a server knows the topics of a read-only broker, and no operator removed its write permission."""
    view, seen = cell.view, cell.seen
    knows_routes = view.info is not None and view.topic_report.revision == view.info.revision
    return seen is not None and bool(knows_routes and seen.live.topics) and not seen.live.write_removed


def topics_of(cluster: Cluster, broker_name: str) -> tuple[list[str], bool]:
    """The topics that servers report with queues on a group, and whether these are all."""
    reports = topic_reports(cluster).values()
    # Equal routes are one object, so each is looked at once.
    distinct = {id(route): route for each in reports for route in each.routes.values()}
    having = {
        number
        for number, route in distinct.items()
        if any(queues.broker_name == broker_name for queues in route.queue_datas)
    }
    topics = {topic for each in reports for topic, route in each.routes.items() if id(route) in having}
    # Apache's server reports no routes of very many topics.
    is_known = len(reports) == len(cluster.servers) and all(each.routes or not each.topics for each in reports)
    return sorted(topics), is_known


def events_of(
    cluster: Cluster, cluster_name: str, broker_name: str, moment_ms: Callable[[float], int]
) -> list[tuple[ServerView, Event]]:
    """The events of a group on any server, newest first, with their times on the console's clock."""
    return [
        (view, event)
        for view, event in newest_first(cluster, moment_ms)
        if event.fields.get("broker_name") == broker_name and event.fields.get("cluster") in (None, cluster_name)
    ]


def instances_of(
    cluster: Cluster, cluster_name: str, broker_name: str, events: Iterable[tuple[ServerView, Event]]
) -> set[BrokerKey]:
    """The instances of a group that a server has, or that one of its events names."""
    present = {key for key in cluster.broker_keys if key[:2] == (cluster_name, broker_name)}
    numbers = (event.fields.get("broker_id") for _, event in events)
    return present | {BrokerKey(cluster_name, broker_name, number) for number in numbers if isinstance(number, int)}


def connections_of(rows: Iterable[BrokerRow]) -> list[tuple[BrokerKey, ServerView, Connection]]:
    """The connections over which instances are registered."""
    return [
        (row.key, cell.view, connection)
        for row in rows
        for cell in row.cells
        if cell.seen is not None
        for connection in cell.view.connections or ()
        if connection.id == cell.seen.live.connection
    ]
