"""What must hold of every run, whatever went wrong in it; by the names that docs/simulation.md explains."""

import asyncio
from collections.abc import Iterator
from typing import Final

from namesrv.routeinfo.records import BrokerAddrInfo, Effect, Evicted
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.simulation.cluster import CLUSTER, BrokerNode, Cluster, Node, ServerNode

# what tells a server that a broker lives
_SIGNS_OF_LIFE: Final = frozenset(
    {RequestCode.REGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION}
)
_LOOK_SECONDS: Final = 0.5
# of latency, and of passes of a loop between what arrives and what comes of it
_SLACK_SECONDS: Final = 0.3
# the worst quartz, on both sides
_DRIFT: Final = 0.002
_TICK_SECONDS: Final = 1.0
_MAX_CREDIT_SECONDS: Final = 600.0


class Violation(Exception):  # noqa: N818 - it is one
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Checks:
    """Looks on, and raises a Violation."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._times = cluster.times
        # (broker's machine, server's machine) -> when a sign of life arrived last, whatever became of it there
        self._heard: dict[tuple[str, str], float] = {}
        self._brokers = {node.address: node for node in cluster.brokers}
        cluster.world.network.on_arrival = self._arrived
        for server in cluster.servers:
            server.on_effect = self._effect
        for node in cluster.nodes:
            node.machine.on_end = lambda left, node=node: self._ended(node, left)  # type: ignore[misc]

    def begin(self) -> None:
        self._world.at(self._world.now + _LOOK_SECONDS, self._look)

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _arrived(self, sender: str, receiver: str, data: bytes) -> None:
        if self._world.machines[sender].kind != "broker":
            return
        for frame in FrameReader(1 << 20).receive_data(data):
            if decode_frame(frame).code in _SIGNS_OF_LIFE:
                self._heard[sender, receiver] = self._world.now

    def _effect(self, server: ServerNode, effect: Effect) -> None:
        if isinstance(effect, Evicted):
            self._evicted(server, effect)

    def _evicted(self, server: ServerNode, effect: Evicted) -> None:
        broker = self._brokers[effect.key.broker_addr]
        where = f"{broker.name} on {server.name}"
        if effect.reason == "silent":
            silent = self._world.now - self._heard.get((broker.name, server.name), -1e9)
            if silent < effect.live.expiry_seconds * (1 - _DRIFT) - 0.01:
                raise Violation("NoLiveBrokerEvicted", f"{where} was evicted, heard {silent:.3f} s ago")
        elif effect.reason == "disconnected":
            assert server.controller is not None
            connection = server.controller.namesrv.connections.get(effect.live.connection_id)
            if connection is not None and connection.is_open:
                raise Violation("NoRemovalOfNewerRegistration", f"{where} was on {connection!r}, which is open")
        elif effect.reason == "unregistered" and broker.is_running and not broker.is_leaving:
            raise Violation("NoRemovalOfNewerRegistration", f"{where} was unregistered by a life before this one")

    def _look(self) -> None:
        for server in self._cluster.servers:
            self._look_at(server)
        for node in self._cluster.nodes:
            if node.machine.problems:
                raise Violation("NothingCrashes", f"{node.name}: {node.machine.problems[0]}")
        self._world.at(self._world.now + _LOOK_SECONDS, self._look)

    def _look_at(self, server: ServerNode) -> None:
        """Nobody is kept that should be gone."""
        controller, now, machine = server.controller, self._world.now, server.machine
        # asked while it is stopped it could not say anything; a moment later it has to have caught up
        if not server.is_running or controller is None or not controller.listening.is_set() or machine.pass_seconds:
            return
        if machine.freezes and now < machine.freezes[-1][1] + _TICK_SECONDS + _SLACK_SECONDS:
            return
        for key, live in controller.namesrv.manager.tables.broker_live_table.items():
            broker = self._brokers[key.broker_addr]
            heard = max(self._heard.get((broker.name, server.name), 0.0), server.started_at)
            late = sum(end - max(begin, heard) for begin, end in machine.freezes if end > heard)
            allowed = live.expiry_seconds + self._times.scan + _TICK_SECONDS + min(late, _MAX_CREDIT_SECONDS)
            if now - heard > allowed * (1 + _DRIFT) + _SLACK_SECONDS:
                silent = f"silent for {now - heard:.3f} s, {late:.3f} s of which {server.name} stood still"
                raise Violation("NoDeadBrokerKept", f"{broker.name} on {server.name}: {silent}")

    def _ended(self, node: Node, left: list[str]) -> None:
        if left:
            raise Violation("NothingLeftBehind", f"{node.name} left {left}")
        if node.machine.problems:
            raise Violation("NothingCrashes", f"{node.name}: {node.machine.problems[0]}")
        if node.is_wanted:
            raise Violation("NothingCrashes", f"{node.name} ended by itself")

    # -- when it has calmed down --------------------------------------------------------------------------------------

    def check_settled(self) -> None:
        """Everybody knows what is true."""
        self._check_tables()
        self._check_clients()

    def _check_tables(self) -> None:
        for server in self._cluster.servers:
            for difference in self._differences(server):
                raise Violation("TablesEqualTruth", f"{server.name}: {difference}")

    def _alive(self) -> list[BrokerNode]:
        return [broker for broker in self._cluster.brokers if broker.is_running and not broker.is_leaving]

    def _differences(self, server: ServerNode) -> Iterator[str]:
        if not server.is_running or server.controller is None:
            yield "does not run"
            return
        tables = server.controller.namesrv.manager.tables
        alive = self._alive()
        live = {BrokerAddrInfo(CLUSTER, broker.address) for broker in alive}
        if live != tables.broker_live_table.keys():
            yield f"live are {sorted(tables.broker_live_table)}, not {sorted(live)}"
        rows = {
            topic: {queues.broker_name: (queues.read_queue_nums, queues.write_queue_nums) for queues in row}
            for topic, row in tables.topic_queue_table.items()
        }
        if rows != (expected := self.expected_rows()):
            yield f"topics are {rows}, not {expected}"

    def expected_rows(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Topic -> broker -> queues to read and to write."""
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
                raise Violation("EveryChangeSeen", f"{client.name} does not run")
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
                    raise Violation("EveryChangeSeen", f"{client.name}: {topic} is on {found}, not {row}")

    def check_gone(self) -> None:
        """Everybody has left."""
        for node in self._cluster.nodes:
            if node.is_running:
                tasks = (
                    "" if node.machine.loop is None else [repr(each) for each in asyncio.all_tasks(node.machine.loop)]
                )
                raise Violation("NothingLeftBehind", f"{node.name} has not ended: {tasks}")
