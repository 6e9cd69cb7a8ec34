"""One topic on each server: its queues on each broker, present or missing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from namesrv_client.ctl.comparison import PRESENT, Fact, perm_text
from namesrv_client.health import subject_of
from namesrv_console.state import BrokerSeen, Cluster, ServerView, TopicReport
from namesrv_console.views.differences import Disagreement, awaited_brokers
from namesrv_remoting.bodies.route import QueueData
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


@dataclass(frozen=True, slots=True)
class _TopicOnServer:
    """The topic as one server reports it."""

    # Broker group -> queues; None: the server does not have the topic.
    queues: Mapping[str, QueueData] | None
    # Facts about the topic that other servers report, and this one is expected to report soon, too.
    expected: Collection[Fact]

    def queues_on(self, broker_name: str) -> QueueData | None:
        """The queues on a broker group; None without any."""
        return None if self.queues is None else self.queues.get(broker_name)

    def state_on(self, broker_name: str) -> CellState:
        """The state of the cell of a broker group."""
        if self.queues is None:
            return "awaited" if PRESENT in self.expected else "absent"
        if broker_name in self.queues:
            return "present"
        return "awaited" if Fact("queues on", broker_name) in self.expected else "missing"


def matrix(
    cluster: Cluster, reports: Mapping[str, TopicReport], topic: str, disagreements: Iterable[Disagreement]
) -> list[MatrixRow]:
    """A row for each broker group that has the topic on any server: without a master first, then those that differ."""
    disagreements = list(disagreements)
    about_topic = [one for one in disagreements if one.difference.kind == "topic" and one.difference.name == topic]
    # Server -> route; False: the server does not have the topic. Servers whose route was not requested are left out.
    routes = {server: route for server, each in reports.items() if (route := each.of(topic)) is not True}
    topics = {
        server: _TopicOnServer(
            {each.broker_name: each for each in route.queue_datas} if route else None,
            {one.difference.fact for one in about_topic if server in one.expected_on},
        )
        for server, route in routes.items()
    }
    addresses: dict[str, dict[int, str]] = {}
    clusters: dict[str, str] = {}
    for group in (group for route in routes.values() if route for group in route.broker_datas):
        addresses.setdefault(group.broker_name, {}).update(group.broker_addrs)
        clusters[group.broker_name] = group.cluster
    awaited = awaited_brokers(disagreements)
    rows = [
        MatrixRow(
            name,
            clusters.get(name),
            dict(sorted(addresses.get(name, {}).items())),
            _cells(cluster.servers, name, topics, awaited),
        )
        for name in sorted(frozenset[str]().union(*(each.queues or () for each in topics.values())))
    ]
    return sorted(rows, key=lambda row: (not row.lacks_master, not row.differs))


def _cells(
    views: Iterable[ServerView],
    broker_name: str,
    topics: Mapping[str, _TopicOnServer],
    awaited: Mapping[str, Collection[str]],
) -> dict[str, Cell]:
    """The cells of one row, by server; `awaited` has the servers on which a broker is awaited."""
    states = {server: each.state_on(broker_name) for server, each in topics.items()}
    queues = {server: each.queues_on(broker_name) for server, each in topics.items()}
    usual = _usual([queues[server] for server, state in states.items() if state != "awaited"])
    cells = {}
    for view in views:
        server = view.address
        if server not in topics:
            cells[server] = Cell("unknown")
            continue
        cells[server] = Cell(
            states[server],
            queues[server],
            is_odd=states[server] != "awaited" and queues[server] != usual,
            instances=_instances(view, broker_name),
            is_master_awaited=_is_master_awaited(view, broker_name, awaited),
        )
    return cells


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
