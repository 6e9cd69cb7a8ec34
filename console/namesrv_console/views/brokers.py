"""The brokers of all servers: cluster by cluster, each instance as each server sees it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_remoting.bodies.extensions import Connection, Event
from namesrv_remoting.codes import PERM_WRITE

# missing: other servers have the broker; unknown: the server was not polled yet, is not ready, is unreachable or
# refuses requests.
CellState = Literal["live", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class BrokerCell:
    """One broker as one server reports it."""

    view: ServerView
    state: CellState
    seen: BrokerSeen | None = None
    # True: all its topics are read-only there, although no operator removed its write permission: it is about to leave.
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One instance, on each server."""

    key: BrokerKey
    cells: Sequence[BrokerCell]

    @property
    def addresses(self) -> Sequence[str]:
        """Its addresses; more than one where servers disagree."""
        return sorted({cell.seen.live.broker_addr for cell in self.cells if cell.seen is not None})

    @property
    def state(self) -> Mapping[str, object]:
        """The state that the broker reports, from the server that received its latest heartbeat."""
        reports = [cell.seen for cell in self.cells if cell.seen is not None]
        return max(reports, key=lambda seen: seen.last_seen_at or 0.0).live.state or {} if reports else {}


def cluster_tree(cluster: Cluster) -> dict[str, list[BrokerRow]]:
    """Cluster name -> its instances, sorted."""
    tree: dict[str, list[BrokerRow]] = {}
    writable = {view.address: writable_brokers(view) for view in cluster.servers}
    for key in cluster.broker_keys:
        tree.setdefault(key.cluster, []).append(_row(key, cluster, writable))
    return tree


def broker_rows(cluster: Cluster, cluster_name: str, broker_name: str) -> list[BrokerRow]:
    """The instances of one group."""
    keys = [key for key in cluster.broker_keys if key[:2] == (cluster_name, broker_name)]
    writable = {view.address: writable_brokers(view) for view in cluster.servers} if keys else {}
    return [_row(key, cluster, writable) for key in keys]


def writable_brokers(view: ServerView) -> frozenset[str]:
    """The groups with a writable topic."""
    # Equal routes are one object, so each is looked at once.
    distinct = {id(route): route for route in view.routes.values()}
    return frozenset(
        queues.broker_name for route in distinct.values() for queues in route.queue_datas if queues.perm & PERM_WRITE
    )


def _row(key: BrokerKey, cluster: Cluster, writable: Mapping[str, frozenset[str]]) -> BrokerRow:
    return BrokerRow(key, [_cell(key, view, writable[view.address]) for view in cluster.servers])


def _cell(key: BrokerKey, view: ServerView, writable: frozenset[str]) -> BrokerCell:
    seen = view.brokers.get(key)
    if seen is None:
        return BrokerCell(view, "missing" if view.state in ("ready", "answers", "draining") else "unknown")
    knows_routes = view.is_native and view.info is not None and view.routes_revision == view.info.revision
    is_drained = (
        bool(knows_routes and seen.live.topics) and not seen.live.write_removed and key.broker_name not in writable
    )
    return BrokerCell(view, "live", seen, is_drained)


def topics_of(cluster: Cluster, broker_name: str) -> list[str]:
    """The topics with queues on a group, on any server."""
    return sorted(
        {
            topic
            for view in cluster.servers
            for topic, route in view.routes.items()
            if any(queues.broker_name == broker_name for queues in route.queue_datas)
        }
    )


def events_of(cluster: Cluster, cluster_name: str, broker_name: str) -> list[tuple[ServerView, Event]]:
    """The events of a group on any server, newest first."""
    found = [
        (view, event)
        for view in cluster.servers
        for event in view.events
        if event.fields.get("broker_name") == broker_name and event.fields.get("cluster") in (None, cluster_name)
    ]
    found.sort(key=lambda it: (it[1].ts_ms or 0, it[1].seq), reverse=True)
    return found


def instances_of(cluster: Cluster, cluster_name: str, broker_name: str) -> set[BrokerKey]:
    """The instances of a group that a server has, or has an event of."""
    present = {key for key in cluster.broker_keys if key[:2] == (cluster_name, broker_name)}
    numbers = (event.fields.get("broker_id") for _, event in events_of(cluster, cluster_name, broker_name))
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
