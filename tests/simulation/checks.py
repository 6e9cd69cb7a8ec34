"""Invariants that hold in every run under any faults, by the names in docs/simulation.md."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from namesrv.routeinfo.tables.effects import Effect, Evicted, RouteChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_client.routes.route import RouteChange
from namesrv_remoting.bodies.extensions import PulledRoutes, PullRoutesRequest
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.simulation.cluster import CLUSTER, BrokerNode, ClientNode, Cluster, Node, ServerNode
from tests.simulation.faults import Fault
from tests.simulation.network import End
from tests.simulation.world import Machine, Violation

# Requests that count as a sign of life of a broker.
_SIGNS_OF_LIFE: Final = frozenset(
    {RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION}
)
# Faults of servers that may lose any broker.
_HITS_ALL: Final = frozenset({"isolate", "busy"})
# Time in which an idle loop reads data that has arrived.
_UNREAD_SECONDS: Final = 0.02
_LOOK_SECONDS: Final = 0.5
# Iterations of a busy server's loop until an arrived sign of life counts: one reads it, two handle it. A new connection
# takes three more, one to accept it and two until it is read.
_READING_ITERATIONS: Final = 3
_ACCEPTING_ITERATIONS: Final = 3
# Number of latest signs that are kept for a broker and a server; fewer can arrive during these iterations.
_SIGNS_KEPT: Final = 32
# Tolerance for latencies, and for loop iterations between an arrival and its effect.
_SLACK_SECONDS: Final = 0.3
# The largest difference of two clocks.
_DRIFT: Final = 0.002
_TICK_SECONDS: Final = 1.0
_MAX_CREDIT_SECONDS: Final = 600.0
# The longest time from a failed disk call to the end of the process.
_FAILING_SECONDS: Final = 2.0
# Pause of an agent after slow failures, and the factor by which its timeouts grow.
_SLOW_BACKOFF_SECONDS: Final = 15.0
_MAX_PATIENCE: Final = 4.0


# Queues of a topic by broker, and addresses of these brokers; None without a route.
_Value = tuple[frozenset[tuple[str, int, int, int]], frozenset[tuple[str, int, str]]] | None


class _Sign(NamedTuple):
    """An arrived sign of life."""

    at: float
    end: End
    # Iteration of the server's loop after which the sign counts.
    counts_after: int


class _History:
    """Routes of one boot of a server."""

    def __init__(self) -> None:
        # topic -> (revision, value) of each change, after the initial value
        self.values: defaultdict[str, list[tuple[int, _Value]]] = defaultdict(lambda: [(0, None)])

    def changed(self, effect: RouteChanged, tables: RouteTables) -> None:
        for topic in sorted(self.values if effect.topics is None else effect.topics):
            row = tables.topic_queue_table.get(topic)
            value = None
            if row:
                queues = frozenset((q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in row.queues)
                groups = [tables.broker_addr_table[q.broker_name] for q in row.queues]
                value = (queues, _addresses(groups))
            self.values[topic].append((effect.revision, value))

    def changed_topics(self, after: int, upto: int) -> set[str]:
        return {
            topic for topic, values in self.values.items() if any(after < revision <= upto for revision, _ in values)
        }

    def value(self, topic: str, revision: int) -> _Value:
        return next(value for number, value in reversed(self.values[topic]) if number <= revision)


def _value_of(route: TopicRouteData | None) -> Any:
    if route is None:
        return None
    queues = frozenset((q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queue_datas)
    return queues, _addresses(route.broker_datas)


def _addresses(groups: Iterable[BrokerData]) -> frozenset[tuple[str, int, str]]:
    return frozenset(
        (group.broker_name, number, addr) for group in groups for number, addr in group.broker_addrs.items()
    )


class Checks:
    """Observes a run and records the first violation."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._faults = faults
        self._world = cluster.world
        self._times = cluster.times
        # (broker's machine, server's machine) -> arrival of the last sign of life, handled or not
        self._last_arrivals: dict[tuple[str, str], float] = {}
        # (broker's machine, server's machine) -> latest signs of life
        self._signs: defaultdict[tuple[str, str], deque[_Sign]] = defaultdict(lambda: deque(maxlen=_SIGNS_KEPT))
        # end of a connection -> iteration of its machine after which the end is read
        self._readable: dict[End, int] = {}
        self._brokers = {node.address: node for node in cluster.brokers}
        # (broker's machine, server's machine) -> connections with a registration, and the last one
        self._registered: defaultdict[tuple[str, str], dict[End, _Sign]] = defaultdict(dict)
        # boot id -> routes of the boot
        self._histories: dict[str, _History] = {}
        # (client, its life) -> topics of which it has had a route
        self._known: dict[tuple[str, int], set[str]] = {}
        # (client, its life, boot id, topic) -> position of the client in the history
        self._places: dict[tuple[str, int, str, str], int] = {}
        cluster.world.network.on_arrival = self._arrived
        cluster.world.network.on_close = self._closed
        for client in cluster.clients:
            client.on_change = self._client_changed
        for operator in cluster.operators:
            operator.on_watch = self._watched
        for server in cluster.servers:
            server.on_effect = self._effect
        for node in cluster.nodes:
            node.machine.on_end = lambda left, node=node: self._ended(node, left)  # type: ignore[misc]

    def _fail(self, invariant: str, what: str) -> None:
        # Recorded, not raised, because the faulty process would catch the exception as its own error.
        self._world.violation = self._world.violation or Violation(invariant, what)

    def begin(self) -> None:
        self._world.at(self._world.now + _LOOK_SECONDS, self._look)

    # -- during the run ------------------------------------------------------------------------------------------------

    def _arrived(self, end: End, data: bytes) -> None:
        if end.there.kind != "broker":
            return
        is_alive = end.peer is not None and end.peer.loop is end.there.loop
        link = (end.there.name, end.machine.name)
        for frame in FrameReader(1 << 20).receive_data(data):
            command = decode_frame(frame)
            if command.code not in _SIGNS_OF_LIFE:
                continue
            self._last_arrivals[link] = self._world.now
            readable = self._readable.setdefault(end, end.machine.iterations + _ACCEPTING_ITERATIONS)
            sign = _Sign(self._world.now, end, max(readable, end.machine.iterations) + _READING_ITERATIONS)
            # A server may ignore what a killed process has sent before.
            if is_alive and not self._is_outdated(command, end):
                self._signs[link].append(sign)
            if command.code == RequestCode.REGISTER_BROKER:
                self._registered[link][end] = sign

    def _is_outdated(self, command: RemotingCommand, end: End) -> bool:
        """True for a native heartbeat over an older connection than an open one over which the broker registered.

        The server does not count such heartbeats: the agent sent them before that registration, and they arrive late.
        """
        is_heartbeat = command.is_native and command.code == RequestCode.BROKER_HEARTBEAT
        return is_heartbeat and any(
            newer.number > end.number and newer.loop is end.loop and not newer.is_closing()
            for newer in self._registered[end.there.name, end.machine.name]
        )

    def _closed(self, end: End) -> None:
        """Check that an agent registers over a new connection before it closes its only one to a server."""
        broker = self._brokers.get(f"{end.machine.address}:10911")
        network, server = self._world.network, end.there
        if broker is None or broker.is_leaving or network.latest[broker.name, server.name] != end.number:
            # An agent may close a connection that is not its latest, such as a failed attempt.
            return
        is_way_open = network.is_open((broker.name, server.name)) and network.is_open((server.name, broker.name))
        usable = [each for each in self._registered[broker.name, server.name] if each.is_open]
        if is_way_open and usable == [end.peer]:
            self._fail("NoLiveBrokerEvicted", f"{broker.name} closes its connection to {server.name}, {end!r}")

    def _effect(self, server: ServerNode, effect: Effect) -> None:
        if isinstance(effect, Evicted):
            self._evicted(server, effect)
        elif isinstance(effect, RouteChanged):
            assert server.controller is not None
            namesrv = server.controller.namesrv
            history = self._histories.setdefault(namesrv.boot.id, _History())
            history.changed(effect, namesrv.manager.tables)

    def _evicted(self, server: ServerNode, effect: Evicted) -> None:
        broker = self._brokers[effect.key.broker_addr]
        last_seen = self._last_sign_due(broker, server)
        where = f"{broker.name} on {server.name}"
        if effect.reason == "silent":
            silent = self._world.now - last_seen
            if silent < effect.live.expiry_seconds * (1 - _DRIFT) - 0.01:
                self._fail("NoLiveBrokerEvicted", f"{where} was evicted, last seen {silent:.3f} s ago")
        elif effect.reason == "disconnected" and not self._was_busy(server.machine):
            assert server.controller is not None
            connection = server.controller.namesrv.slots.connections.get(effect.live.connection_id)
            if connection is not None and connection.is_open:
                self._fail("NoRemovalOfNewerRegistration", f"{where} was on {connection!r}, which is open")
            if effect.silent_seconds > effect.live.expiry_seconds:
                # The next scan would have evicted the broker: a connection silent for so long only seems to be open.
                return
            for end, sign in self._registered[broker.name, server.name].items():
                silent = self._world.now - sign.at
                # A server that computes for long after reading its sockets cannot know of later arrivals.
                has_read = silent > _UNREAD_SECONDS and server.machine.iterations > sign.counts_after
                if end.is_open and end.loop is server.machine.loop and has_read:
                    self._fail("NoLiveBrokerEvicted", f"{where} was evicted, registered anew {silent:.3f} s ago")
        elif effect.reason == "unregistered" and broker.has_registered(effect.live.agent_id) and not broker.is_leaving:
            self._fail("NoRemovalOfNewerRegistration", f"{where} was unregistered by an earlier life")

    def _was_busy(self, machine: Machine) -> bool:
        """Return true while connections may wait to be accepted, or their first requests to be handled."""
        return bool(machine.iteration_seconds) or self._world.now < machine.was_busy_until + _SLACK_SECONDS

    def _last_sign_due(self, broker: BrokerNode, server: ServerNode) -> float:
        """The arrival of the last sign of life that the server must know.

        A server reads its sockets and then evicts, so it cannot know of signs that arrive in between; nor of signs that
        a reset connection has lost before they were read. It ignores requests that it reads together with the end of
        their connection: signs of a killed process do not count if the server had not read them before.
        """
        for sign in reversed(self._signs[broker.name, server.name]):
            if server.machine.iterations > sign.counts_after and sign.at < sign.end.lost_since:
                return sign.at
        return -1e9

    def _client_changed(self, client: ClientNode, change: RouteChange) -> None:
        """Check that a client never loses a route, nor returns to an older one of the same boot."""
        self._known.setdefault((client.name, client.machine.lives), set()).add(change.topic)
        for name in change.brokers_removed:
            if not self._is_excused(name):
                self._fail("RoutesNeverLost", f"{client.name} has lost {name} of {change.topic}")
        if change.new is None or (history := self._histories.get(change.new.sender[0])) is None:
            return
        place = (client.name, client.machine.lives, change.new.sender[0], change.topic)
        actual = _value_of(change.new.data)
        values = history.values[change.topic]
        for number in range(self._places.get(place, 0), len(values)):
            if values[number][1] == actual:
                self._places[place] = number
                return
        self._fail("RevisionNeverBack", f"{client.name} knows {change.topic} on {sorted(actual[0])}, after newer")

    def _is_excused(self, broker_name: str) -> bool:
        """Return true if a recent fault of a broker, or on its ways, may have made servers lose it."""
        group = [broker for broker in self._cluster.brokers if broker.broker_name == broker_name]
        if any(not broker.is_wanted or broker.is_leaving for broker in group):
            return True
        machines = {broker.name for broker in group}
        if len(self._cluster.servers) == 1:
            # A single server that has lost its files cannot be contradicted by others.
            machines.add(self._cluster.servers[0].name)
        since = self._world.now - self._times.expiry - self._times.scan - self._times.warm_up - 2 * self._times.poll
        return any(
            fault.kind in _HITS_ALL or not machines.isdisjoint(fault.where)
            for fault in self._faults
            if fault.at <= self._world.now and fault.until >= since
        )

    def _watched(self, server: ServerNode, asked: PullRoutesRequest, response: PulledRoutes) -> None:
        """Check that the response to a watch has all changes since its revision, and no others."""
        history = self._histories.setdefault(response.boot_id, _History())
        where = f"{server.name} at {response.revision}, since {asked.since}"
        if response.boot_id == asked.boot_id:
            if response.revision < asked.since:
                self._fail("WatchReordersNothing", where)
            changed = history.changed_topics(asked.since, response.revision) & set(asked.topics)
            if missing := changed - response.routes.keys():
                self._fail("WatchLosesNothing", f"{where}: without {sorted(missing)}")
            if twice := response.routes.keys() - changed:
                self._fail("WatchDoublesNothing", f"{where}: {sorted(twice)} repeated")
        for topic, route in response.routes.items():
            actual, value = _value_of(route), history.value(topic, response.revision)
            if actual != value:
                self._fail("WatchLosesNothing", f"{where}: {topic} is on {actual}, not {value}")

    def _check_kv(self, server: ServerNode) -> None:
        """Check that a server keeps every acknowledged key."""
        assert server.controller is not None
        found = server.controller.namesrv.kv.namespace("simulation") or {}
        for operator in self._cluster.operators:
            for key, value in operator.acknowledged[server.name].items():
                if found.get(key) != value:
                    self._fail("AcknowledgedKvKept", f"{server.name} has {found.get(key)} for {key}, not {value}")

    def _look(self) -> None:
        for server in self._cluster.servers:
            self._look_at(server)
        for client in self._cluster.clients:
            if client.is_running and client.client is not None:
                for topic in sorted(self._known.get((client.name, client.machine.lives), ())):
                    if client.client.cached(topic) is None:
                        self._fail("RoutesNeverLost", f"{client.name} knows nothing of {topic} any more")
        for node in self._cluster.nodes:
            if node.machine.problems:
                self._fail("NothingCrashes", f"{node.name}: {node.machine.problems[0]}")
        self._world.at(self._world.now + _LOOK_SECONDS, self._look)

    def _look_at(self, server: ServerNode) -> None:
        """Check that no server keeps a dead broker or a slow reader."""
        controller, now, machine = server.controller, self._world.now, server.machine
        # A frozen server is checked after it has had time to catch up.
        if (
            not server.is_running
            or controller is None
            or not controller.listening.is_set()
            or machine.iteration_seconds
        ):
            return
        stopped = max(machine.was_busy_until, *(end for _, end in (*machine.freezes[-1:], *machine.hogs[-1:])), 0.0)
        if now < stopped + self._times.scan + _TICK_SECONDS + _SLACK_SECONDS:
            return
        self._check_kv(server)
        for end in self._world.network.ends_of(machine):
            unread = 0.0 if end.paused_since is None else now - end.paused_since
            if unread > self._times.unread + _TICK_SECONDS + _SLACK_SECONDS:
                self._fail("NoSlowReaderKept", f"{end!r} leaves responses unread for {unread:.3f} s")
        # The server has disconnected its clients, and after them its brokers, which its next boot expects.
        has_drained = controller.namesrv.boot.is_draining and not any(
            end.is_open and end.there.kind == "client" for end in self._world.network.ends_of(machine)
        )
        for key, live in controller.namesrv.manager.tables.broker_live_table.items():
            if has_drained and live.connection_id not in controller.namesrv.slots.connections:
                continue
            broker = self._brokers[key.broker_addr]
            last_seen = max(self._last_arrivals.get((broker.name, server.name), 0.0), server.started_at)
            # Signs that arrived during a freeze may be read afterwards, and count from then on.
            stops = (*machine.freezes, *machine.hogs)
            late = sum(end - max(begin, last_seen) for begin, end in stops if end > last_seen)
            allowed = live.expiry_seconds + self._times.scan + _TICK_SECONDS + min(late, _MAX_CREDIT_SECONDS)
            if now - last_seen > allowed * (1 + _DRIFT) + _SLACK_SECONDS:
                silent = f"silent for {now - last_seen:.3f} s, {late:.3f} s of which {server.name} was stopped"
                self._fail("NoDeadBrokerKept", f"{broker.name} on {server.name}: {silent}")

    def _ended(self, node: Node, left: list[str]) -> None:
        disk = node.machine.disk
        if disk is not None and disk.failed_at > self._world.now - _FAILING_SECONDS and not left:
            # The process ended because of its disk; its supervisor starts it again.
            node.machine.problems.clear()
            if node.is_wanted:
                self._world.at(self._world.now + 1.0, node.start)
            return
        if left:
            self._fail("NothingLeftBehind", f"{node.name} left {left}")
        if node.machine.problems:
            self._fail("NothingCrashes", f"{node.name}: {node.machine.problems[0]}")
        if node.is_wanted:
            self._fail("NothingCrashes", f"{node.name} ended by itself")

    # -- after the faults ----------------------------------------------------------------------------------------------

    def settle_seconds(self) -> float:
        """The longest time from the end of all faults until every server knows the truth.

        The time is that of a heartbeat that finds its connection dead, or the pause of an agent after slow failures.
        """
        times = self._times
        longest = times.heartbeat + times.response
        if any(broker.is_slow for broker in self._cluster.brokers):
            pause = min(times.heartbeat, _SLOW_BACKOFF_SECONDS)
            longest = max(longest, _MAX_PATIENCE * times.response + pause)
        return longest + _SLACK_SECONDS

    def check_settled(self) -> None:
        """Check that all servers and clients know the truth."""
        self.check_tables()
        self._check_clients()

    def check_tables(self) -> None:
        """Check that every server has exactly the live brokers and their topics."""
        for server in self._cluster.servers:
            for difference in self._differences(server):
                self._fail("TablesEqualTruth", f"{server.name}: {difference}")

    def _alive(self) -> list[BrokerNode]:
        return [broker for broker in self._cluster.brokers if broker.is_running and not broker.is_leaving]

    def _differences(self, server: ServerNode) -> Iterator[str]:
        if not server.is_running or server.controller is None or not server.controller.listening.is_set():
            yield "does not run"
            return
        tables = server.controller.namesrv.manager.tables
        alive = self._alive()
        live = {BrokerAddrInfo(CLUSTER, broker.address) for broker in alive}
        if live != tables.broker_live_table.keys():
            yield f"live are {sorted(tables.broker_live_table)}, not {sorted(live)}"
        rows = {
            topic: {queues.broker_name: (queues.read_queue_nums, queues.write_queue_nums) for queues in row.queues}
            for topic, row in tables.topic_queue_table.items()
            # In RocketMQ's protocol an agent with one topic adds a topic with the broker's name.
            if topic not in tables.broker_addr_table
        }
        if rows != (expected := self.expected_rows()):
            yield f"topics are {rows}, not {expected}"

    def expected_rows(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Topic -> broker -> read queues and write queues."""
        rows: dict[str, dict[str, tuple[int, int]]] = {}
        for broker in self._alive():
            if broker.broker_id == 0:
                for topic, config in broker.topics.items():
                    queues = (config.read_queue_nums, config.write_queue_nums)
                    rows.setdefault(topic, {})[broker.broker_name] = queues
        return rows

    def _check_clients(self) -> None:
        expected = self.expected_rows()
        for client in self._cluster.clients:
            if not client.is_running or client.client is None:
                self._fail("EveryChangeSeen", f"{client.name} does not run")
                continue
            for topic, row in expected.items():
                route = client.client.cached(topic)
                if route is None and not client.client.is_in_use(topic):
                    continue
                found = None
                if route is not None and route.confirmed_absent_since is None:
                    found = {
                        queues.broker_name: (queues.read_queue_nums, queues.write_queue_nums)
                        for queues in route.data.queue_datas
                    }
                if found != row:
                    self._fail("EveryChangeSeen", f"{client.name}: {topic} is on {found}, not {row}")

    def check_gone(self) -> None:
        """Check that all processes have ended."""
        for node in self._cluster.nodes:
            if node.is_running:
                tasks = [] if node.machine.loop is None else node.machine.loop.tasks
                waiting = [task.get_coro().__qualname__ for task in tasks]  # type: ignore[union-attr]
                self._fail("NothingLeftBehind", f"{node.name} has not ended: {waiting}")
