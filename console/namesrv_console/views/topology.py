"""The topology: clients, servers and broker groups, and the state of each registration. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from namesrv_client.health import Problem
from namesrv_console.state import Cluster, ServerView
from namesrv_console.views.heat import Heat, HeatCell, HeatMap
from namesrv_console.views.problems import worst, worst_by
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.health import Level

# broken: the server lacks a broker of the group; awaited: the lack is expected to end soon; unknown: the server
# does not report its brokers now. Worst first.
EdgeState = Literal["broken", "unknown", "awaited", "good"]

# With more groups, the picture shows clusters instead.
MOST_GROUPS: Final = 50
ROW_HEIGHT: Final = 40
_STATES: Final[tuple[EdgeState, ...]] = ("broken", "unknown", "awaited", "good")
_OF_HEAT: Final[Mapping[Heat, EdgeState]] = {
    "missing": "broken",
    "frozen": "unknown",
    "unknown": "unknown",
    "awaited": "awaited",
}


# Cluster and name of a group -> broker id -> a cell for each server.
_Members = Mapping[tuple[str, str], Mapping[int, Sequence[HeatCell]]]


class ServerNode(NamedTuple):
    """A server, and the number of clients connected to it."""

    view: ServerView
    y: float
    # None: the server does not report its connections.
    clients: int | None


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker group, or a cluster if there are many groups."""

    cluster: str
    # None for a cluster.
    name: str | None
    y: float
    groups: int
    masters: int
    slaves: int
    # Level of the worst problem of the groups; unknown if no server reports one of the instances now.
    level: Level


class Edge(NamedTuple):
    """The registrations of a node on a server."""

    from_y: float
    to_y: float
    state: EdgeState


@dataclass(frozen=True, slots=True)
class Topology:
    """The picture: servers, groups or clusters, and an edge for each pair of them."""

    servers: Sequence[ServerNode]
    brokers: Sequence[BrokerNode]
    edges: Sequence[Edge]
    height: int

    def count(self, state: EdgeState) -> int:
        """Number of edges in a state."""
        return sum(edge.state == state for edge in self.edges)


def topology(cluster: Cluster, heat: HeatMap, problems: Iterable[Problem]) -> Topology:
    """The picture of a cluster whose brokers are in a heat map."""
    groups = {(name, group): heat[name][group] for name in heat for group in heat[name]}
    # Problems of servers are of no group, None.
    levels = worst_by(lambda one: one.group, problems)
    keys: Sequence[tuple[str, str | None]] = (
        [*groups] if len(groups) <= MOST_GROUPS else [(name, None) for name in heat]
    )
    rows = max(len(keys), len(cluster.servers), 1)
    servers = [
        ServerNode(view, _y(at, len(cluster.servers), rows), _clients(view)) for at, view in enumerate(cluster.servers)
    ]
    nodes, edges = [], []
    for at, (name, group) in enumerate(keys):
        members = {key: groups[key] for key in groups if key[0] == name and group in (None, key[1])}
        node = _node(name, group, _y(at, len(keys), rows), members, levels)
        nodes.append(node)
        edges += [Edge(server.y, node.y, _state(place, members)) for place, server in enumerate(servers)]
    return Topology(servers, nodes, edges, rows * ROW_HEIGHT)


def _node(
    name: str, group: str | None, y: float, members: _Members, levels: Mapping[tuple[str, str] | None, Level]
) -> BrokerNode:
    """The node of a group, or of the groups of a cluster."""
    instances = [(number, cells) for each in members.values() for number, cells in each.items()]
    present = [(number, cells) for number, cells in instances if any(cell.seen for cell in cells)]
    masters = sum(number == MASTER_ID for number, _ in present)
    is_reported = all(any(cell.is_reported for cell in cells) for _, cells in present)
    reported: Level = "good" if is_reported else "unknown"
    level = worst([reported, *(levels[key] for key in members if key in levels)])
    return BrokerNode(name, group, y, len(members), masters, len(present) - masters, level)


def _state(server: int, members: _Members) -> EdgeState:
    """The worst state of the instances of a node on one server."""
    found = {_OF_HEAT.get(cells[server].heat, "good") for each in members.values() for cells in each.values()}
    return next(state for state in _STATES if state in found)


def _y(at: int, count: int, rows: int) -> float:
    """The middle of a node; the nodes of a column are spread over the height."""
    return round((at + 0.5) * rows * ROW_HEIGHT / count, 1)


def _clients(view: ServerView) -> int | None:
    return None if view.connections is None else sum(one.role == "client" for one in view.connections)
