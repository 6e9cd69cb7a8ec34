"""One topic on each server: its queues on each broker, present or missing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from namesrv_client.ctl.comparison import PRESENT, Fact, perm_text
from namesrv_client.health import subject_of
from namesrv_console.state import BrokerSeen, Cluster, ServerView, TopicReport
from namesrv_console.views.differences import Disagreement, awaited_brokers
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID

# missing: the server has the topic, but not on that broker; absent: the server does not have the topic; awaited: one of
# these, and expected to end soon; unknown: the server does not report it.
CellState = Literal["present", "missing", "absent", "awaited", "unknown"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A topic's queues on one broker group, as one server reports them."""

    state: CellState
    queues: QueueData | None = None
    # True: the value differs from the usual one, which most servers report.
    is_odd: bool = False
    # Broker id -> instance of the group on the server, the master first.
    instances: Mapping[int, BrokerSeen] = field(default_factory=dict)
    # True: the server has just started, so that the master is expected to register soon.
    is_master_awaited: bool = False

    @property
    def lacks_master(self) -> bool:
        """True if the server reports instances of the group and no master, and should have one by now."""
        return bool(self.instances) and MASTER_ID not in self.instances and not self.is_master_awaited

    @property
    def text(self) -> str:
        """The queues as a person reads them: `8/8 RW-`."""
        queues = self.queues
        return "" if queues is None else f"{queues.read_queue_nums}/{queues.write_queue_nums} {perm_text(queues.perm)}"


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One broker group of a topic, with a cell for each server."""

    broker_name: str
    cluster: str | None
    # Broker id -> address, from all servers.
    addresses: Mapping[int, str]
    cells: Mapping[str, Cell]

    @property
    def differs(self) -> bool:
        """True if servers disagree."""
        return any(cell.is_odd for cell in self.cells.values())

    @property
    def lacks_master(self) -> bool:
        """True if the group has no master on a server."""
        return any(cell.lacks_master for cell in self.cells.values())


def matrix(
    cluster: Cluster, reports: Mapping[str, TopicReport], topic: str, disagreements: Iterable[Disagreement]
) -> list[MatrixRow]:
    """A row for each broker group that has the topic on any server: without a master first, then those that differ."""
    disagreements = list(disagreements)
    awaited = awaited_brokers(disagreements)
    # Fact about the topic -> the servers whose difference is expected.
    expected = {
        one.difference.fact: one.expected_on
        for one in disagreements
        if one.difference.kind == "topic" and one.difference.name == topic
    }
    routes: dict[str, TopicRouteData | None] = {}
    for server, each in reports.items():
        reported = each.of(topic)
        # True: the server has the topic, and its route was not requested.
        if reported is not True:
            routes[server] = reported or None
    queues = {
        server: {} if route is None else {each.broker_name: each for each in route.queue_datas}
        for server, route in routes.items()
    }
    addresses: dict[str, dict[int, str]] = {}
    clusters: dict[str, str] = {}
    for route in routes.values():
        for group in () if route is None else route.broker_datas:
            addresses.setdefault(group.broker_name, {}).update(group.broker_addrs)
            clusters[group.broker_name] = group.cluster
    rows = []
    for name in sorted({name for each in queues.values() for name in each}):
        states: dict[str, CellState] = {
            server: "present" if name in queues[server] else _lack(server, name, route, expected)
            for server, route in routes.items()
        }
        usual = _usual([queues[server].get(name) for server, state in states.items() if state != "awaited"])
        cells: dict[str, Cell] = {}
        for view in cluster.servers:
            if view.address not in queues:
                cells[view.address] = Cell("unknown")
                continue
            found, state = queues[view.address].get(name), states[view.address]
            is_odd = state != "awaited" and found != usual
            cells[view.address] = Cell(
                state,
                found,
                is_odd=is_odd,
                instances=_instances(view, name),
                is_master_awaited=_is_master_awaited(view, name, awaited),
            )
        rows.append(MatrixRow(name, clusters.get(name), dict(sorted(addresses.get(name, {}).items())), cells))
    return sorted(rows, key=lambda row: (not row.lacks_master, not row.differs))


def _lack(
    server: str, broker: str, route: TopicRouteData | None, expected: Mapping[Fact, Collection[str]]
) -> CellState:
    """The state of a cell whose server has no queues of the topic on the broker."""
    fact = PRESENT if route is None else Fact("queues on", broker)
    return "awaited" if server in expected.get(fact, ()) else "absent" if route is None else "missing"


def _usual(values: Sequence[QueueData | None]) -> QueueData | None:
    """The value of most servers; among equally frequent ones, a value with queues."""
    return max(values, key=lambda each: (values.count(each), each is not None))


def _instances(view: ServerView, broker_name: str) -> dict[int, BrokerSeen]:
    found = {key.broker_id: seen for key, seen in view.brokers.items() if key.broker_name == broker_name}
    return dict(sorted(found.items()))


def _is_master_awaited(view: ServerView, broker_name: str, awaited: Mapping[str, Collection[str]]) -> bool:
    """True if a server lacks the master of a group because it has just started."""
    clusters = {key.cluster for key in view.brokers if key.broker_name == broker_name}
    masters = [subject_of((cluster, broker_name, MASTER_ID)) for cluster in clusters]
    return any(view.address in awaited.get(master, ()) for master in masters)
