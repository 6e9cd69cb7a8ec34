"""The faults of a run, planned before the run so that a failing list can be shrunk."""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from namesrv_remoting.codes import MASTER_ID
from tests.simulation.cluster import BrokerNode, Cluster, Node, OperatorNode
from tests.simulation.disk import Disk
from tests.simulation.sizes import TOPICS, Size


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its time, kind, place and duration."""

    at: float
    kind: str
    where: tuple[str, ...]
    seconds: float = 0.0
    value: Any = None

    @property
    def until(self) -> float:
        return self.at + self.seconds

    @property
    def way(self) -> tuple[str, str]:
        """The direction of a fault between two machines."""
        begin, end = self.where
        return begin, end

    def __str__(self) -> str:
        value = "" if self.value is None else f" {self.value}"
        return f"{self.at:8.3f} {self.kind} {' -> '.join(self.where)}{value} for {self.seconds:.3f} s"


# kind -> weight of the kind
_KINDS: Final[dict[str, int]] = {
    "kill": 5,
    "power": 3,
    "leave": 3,
    "freeze": 4,
    "cut": 5,
    "cut both": 4,
    "isolate": 2,
    "reset": 4,
    "half-open": 3,
    "crumbs": 3,
    "slow way": 2,
    "slow flow": 5,
    "busy": 2,
    "hog": 2,
    "clock": 3,
    "topic": 6,
    "disk full": 2,
    "disk fails": 2,
    "disk slow": 2,
    "torn": 4,
}
# One run of so many has a peer that reads slowly; it is drawn separately, so that it changes no other fault.
_RUNS_PER_SLOW_READER: Final = 12
_READ_RATES: Final = (1_000, 10_000, 40_000)
# Kinds of faults between two machines.
_WAYS: Final = frozenset({"cut", "cut both", "reset", "half-open", "crumbs", "slow way", "slow flow"})
_ON_SERVERS: Final = frozenset({"busy", "hog", "disk full", "disk fails", "disk slow", "torn"})
# With short times all processes run at the beginning.
_BEGIN: Final = 4.0
_END: Final = 24.0
# Time in which the removals of a schedule begin.
_REMOVALS_SECONDS: Final = 8.0
# Kinds without an end.
_INSTANT: Final = frozenset({"clock", "topic"})
# kind -> kinds that make it worse in the middle
_SECONDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("disk full", "disk fails", "disk slow"), ("kill", "power")),
    "slow flow": ("leave", "kill"),
}
# kind -> severity
_VALUES: Final[dict[str, Callable[[random.Random], Any]]] = {
    "crumbs": lambda chosen: chosen.choice([1, 2, 7, 100]),
    "slow way": lambda chosen: round(chosen.uniform(0.02, 0.6), 3),
    "slow flow": lambda chosen: round(chosen.uniform(0.1, 4.0), 3),
    "busy": lambda chosen: round(chosen.uniform(0.01, 0.4), 3),
    "clock": lambda chosen: round(chosen.choice([-1, 1]) * chosen.uniform(1, 100_000), 3),
    "topic": lambda chosen: (chosen.choice([*TOPICS, "news"]), chosen.choice([None, 2, 4, 8])),
    "disk full": lambda _: errno.ENOSPC,
    "disk fails": lambda _: errno.EIO,
    "disk slow": lambda chosen: round(chosen.uniform(0.05, 5.0), 3),
    "torn": lambda chosen: chosen.randint(0, 12),
}


def plan(chosen: random.Random, size: Size) -> list[Fault]:
    """Draw the faults of a run, ordered by time."""
    kinds, weights = list(_KINDS), list(_KINDS.values())
    count = chosen.randint(1, size.most_faults)
    faults = [_fault(chosen, kind, size) for kind in chosen.choices(kinds, weights, k=count)]
    # Some faults come in pairs: the second one happens during the first.
    faults += [_second(chosen, fault, size) for fault in faults if fault.kind in _SECONDS and chosen.random() < 0.5]
    return sorted(faults, key=lambda fault: fault.at)


def removals(chosen: random.Random, size: Size) -> list[Fault]:
    """Draw faults that make a broker register again while an older registration of it is being removed."""
    pace = size.times.pace
    faults = []
    for _ in range(chosen.randint(size.most_faults // 2, size.most_faults + 4)):
        kind = chosen.choice(("reset", "half-open", "leave", "kill", "cut", "hog", "slow flow"))
        agent, server = chosen.choice(size.agents), chosen.choice(size.servers)
        way = (agent, server) if chosen.random() < 0.5 else (server, agent)
        where = {"leave": (agent,), "kill": (agent,), "hog": (server,)}.get(kind, way)
        at, seconds = chosen.uniform(0.0, _REMOVALS_SECONDS) * pace, chosen.uniform(0.01, 4.0 * pace)
        faults.append(Fault(at, kind, where, seconds, _VALUES[kind](chosen) if kind in _VALUES else None))
        if kind in _SECONDS:
            # The broker returns while its old connections are slow.
            faults.append(_second(chosen, faults[-1], size))
    return sorted(faults, key=lambda fault: fault.at)


def slow_readers(chosen: random.Random, size: Size) -> list[Fault]:
    """Draw at most one slow reader; its rate grows as the time shrinks."""
    if chosen.randrange(_RUNS_PER_SLOW_READER):
        return []
    pace = size.times.pace
    at, seconds = chosen.uniform(_BEGIN, _END) * pace, chosen.uniform(2.0, 8.0) * pace
    return [slow_reader(at, chosen.choice(size.servers), seconds, chosen.choice(_READ_RATES) / pace)]


def slow_reader(at: float, server: str, seconds: float, rate: float) -> Fault:
    """A fault in which the operator requests more from a server than it reads."""
    return Fault(at, "slow reader", ("operator", server), seconds, rate)


def _second(chosen: random.Random, first: Fault, size: Size) -> Fault:
    """A second fault during the first one, at one of its places."""
    kind = chosen.choice(_SECONDS[first.kind])
    at = first.at + min(chosen.uniform(0.0, 1.0) * first.seconds, chosen.choice([0.5, 5.0]))
    where = next((name for name in first.where if name in size.agents), first.where[0])
    return Fault(at, kind, (where,), chosen.uniform(0.01, 1.0))


def _fault(chosen: random.Random, kind: str, size: Size) -> Fault:
    pace = size.times.pace
    # Most faults are short; some last until every timeout has expired.
    lengths = [chosen.uniform(0.01, 1.0), chosen.uniform(0.5, 6.0 * pace), chosen.uniform(6.0, _END - _BEGIN) * pace]
    seconds = chosen.choice(lengths)
    at = chosen.uniform(_BEGIN * pace, max(_BEGIN * pace, _END * pace - seconds))
    machine = chosen.choice(size.servers * 2 + size.agents + size.clients)
    way = (chosen.choice(size.agents * 2 + size.clients), chosen.choice(size.servers))
    if chosen.random() < 0.5:
        way = way[::-1]
    where: tuple[str, ...] = (machine,)
    if kind in _WAYS:
        where = way
    elif kind in _ON_SERVERS:
        where = (chosen.choice(size.servers),)
    elif kind == "topic":
        where = (chosen.choice(size.agents),)
    value = _VALUES[kind](chosen) if kind in _VALUES else None
    return Fault(at, kind, where, 0.0 if kind in _INSTANT else seconds, value)


class Injector:
    """Carries out planned faults."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._network = cluster.world.network
        self._is_over = False
        # All scheduled faults, at their times in the run.
        self.faults: list[Fault] = []
        # Processes that start again after they have ended.
        self.ending: set[Node] = set()

    def end(self) -> None:
        """Start no process again, not even one that is still stopping."""
        self._is_over = True

    def schedule(self, fault: Fault) -> None:
        self.faults.append(fault)
        self._world.at(fault.at, lambda: self._inject(fault))

    def _inject(self, fault: Fault) -> None:
        self._world.note("fault", fault.kind, *fault.where, fault.value, f"for {fault.seconds:.3f} s")
        begin: Callable[[Fault], Callable[[], None] | None] = {
            "kill": self._down,
            "power": self._down,
            "leave": self._down,
            "freeze": self._freeze,
            "cut": self._cut,
            "cut both": self._cut,
            "isolate": self._isolate,
            "reset": self._reset,
            "half-open": self._reset,
            "crumbs": self._crumbs,
            "slow way": self._slow_way,
            "slow reader": self._slow_reader,
            "slow flow": self._slow_flow,
            "busy": self._busy,
            "hog": self._hog,
            "clock": self._clock,
            "topic": self._topic,
            "disk full": self._disk_error,
            "disk fails": self._disk_error,
            "disk slow": self._disk_slow,
            "torn": self._torn,
        }[fault.kind]
        end = begin(fault)

        def over() -> None:
            if end is not None:
                end()
                self._world.note("fault", "over:", fault.kind, *fault.where)

        self._world.at(fault.until, over)

    def _down(self, fault: Fault) -> Callable[[], None] | None:
        node = self._cluster.node(fault.where[0])
        if not node.is_wanted:
            return None
        {"kill": node.kill, "power": node.lose_power, "leave": node.stop}[fault.kind]()
        return lambda: self._up(node)

    def _up(self, node: Node) -> None:
        if node.is_wanted or self._is_over:
            # The end of another fault has started the process, or all processes are stopped.
            self.ending.discard(node)
            return
        if node.is_running:
            # The supervisor waits until the process has ended.
            self.ending.add(node)
            self._world.at(self._world.now + 0.5, lambda: self._up(node))
        else:
            self.ending.discard(node)
            node.start()

    def _freeze(self, fault: Fault) -> None:
        self._cluster.node(fault.where[0]).machine.freeze(fault.seconds)

    def _hog(self, fault: Fault) -> None:
        self._cluster.node(fault.where[0]).machine.hog(fault.seconds)

    def _cut(self, fault: Fault) -> Callable[[], None]:
        ways = [fault.where] if fault.kind == "cut" else [fault.where, fault.where[::-1]]
        return self._cut_ways(ways)

    def _isolate(self, fault: Fault) -> Callable[[], None]:
        name = fault.where[0]
        others = [other for other in self._world.machines if other != name]
        return self._cut_ways([way for other in others for way in ((name, other), (other, name))])

    def _cut_ways(self, ways: Any) -> Callable[[], None]:
        for way in ways:
            self._network.cut(way)

        def over() -> None:
            for way in ways:
                self._network.mend(way)

        return over

    def _reset(self, fault: Fault) -> None:
        """A middlebox drops the connections; half-open ones are reset on one side only."""
        one, other = (self._cluster.node(name).machine for name in fault.where)
        for end in self._network.ends_of(one, other):
            peer = end.peer
            end.break_off(ConnectionResetError("connection reset by peer"))
            if fault.kind == "reset" and peer is not None and not peer.is_gone:
                peer.break_off(ConnectionResetError("connection reset by peer"))

    def _crumbs(self, fault: Fault) -> Callable[[], None]:
        return _set(self._network.crumbs, fault)

    def _slow_way(self, fault: Fault) -> Callable[[], None]:
        return _set(self._network.extra_latency, fault)

    def _slow_reader(self, fault: Fault) -> Callable[[], None]:
        reader = self._cluster.node(fault.where[0])
        assert isinstance(reader, OperatorNode)
        server = next(server for server in self._cluster.servers if server.name == fault.where[1])
        reader.pull_a_lot(server, fault.seconds)
        return _set(self._network.read_rates, fault)

    def _slow_flow(self, fault: Fault) -> None:
        """Slow down the open connections of a way, so that data of newer connections overtakes theirs."""
        one, other = (self._cluster.node(name).machine for name in fault.where)
        for end in self._network.ends_of(one, other):
            end.slow_down(fault.value, self._world.now + fault.seconds)

    def _busy(self, fault: Fault) -> Callable[[], None]:
        machine = self._cluster.node(fault.where[0]).machine
        machine.iteration_seconds = fault.value

        def over() -> None:
            machine.iteration_seconds, machine.was_busy_until = 0.0, self._world.now

        return over

    def _disk(self, fault: Fault) -> Disk:
        disk = self._cluster.node(fault.where[0]).machine.disk
        assert disk is not None
        return disk

    def _disk_error(self, fault: Fault) -> Callable[[], None]:
        disk = self._disk(fault)
        disk.error = fault.value

        def over() -> None:
            disk.error = 0

        return over

    def _disk_slow(self, fault: Fault) -> Callable[[], None]:
        disk = self._disk(fault)
        disk.slow_seconds = fault.value

        def over() -> None:
            disk.slow_seconds = 0.0

        return over

    def _torn(self, fault: Fault) -> Callable[[], None]:
        """Cut the power in the middle of a write."""
        node, disk = self._cluster.node(fault.where[0]), self._disk(fault)
        disk.calls_left, disk.on_torn = fault.value, node.lose_power

        def over() -> None:
            disk.calls_left = None
            if not node.is_wanted:
                self._up(node)

        return over

    def _clock(self, fault: Fault) -> None:
        self._cluster.node(fault.where[0]).machine.step_wall(fault.value)

    def _topic(self, fault: Fault) -> None:
        node = self._cluster.node(fault.where[0])
        assert isinstance(node, BrokerNode)
        # All brokers of a group have the same topics, which slaves copy from their master.
        topic, queues = fault.value
        group = [each for each in self._cluster.brokers if each.broker_name == node.broker_name]
        if all(each.can_change_topics for each in group if each.broker_id == MASTER_ID):
            for each in group:
                each.change_topic(topic, queues)


def _set(table: dict[tuple[str, str], Any], fault: Fault) -> Callable[[], None]:
    table[fault.way] = fault.value

    def over() -> None:
        table.pop(fault.way, None)

    return over
