"""The tables are right after any history of registrations, removals, closed connections and delays.

The manager runs beside a model of plain dictionaries (tests/support/route_model.py). Operations under the lock run in
chunks of two topics, and requests that need no lock may arrive between two chunks: an operation decides when it gets
the lock, acts later, and has to notice when it is overtaken. Operations of the model take no time.
"""

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from namesrv.routeinfo.tables.effects import Evicted, Registered, RouteChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.rwlock import ReadWriteLock
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.errors import ResponseError
from namesrv_remoting.zones import in_zones
from tests.support.route_builders import RouteScene, queue_data
from tests.support.route_model import RouteModel, facts_of
from tests.support.table_invariants import violations

CLUSTERS = ["c1", "c2"]
NAMES = ["b1", "b2"]
IDS = [0, 1, 2, -1]
ADDRESSES = ["x1", "x2", "x3", "x4"]
TOPICS = [f"t{number}" for number in range(6)]
ZONE = "z1"
# operations at one time: one holds the lock, the others wait for it
MAX_OPERATIONS = 3

# read queues, write queues, permission, flags
QUEUES = st.sampled_from([(8, 8, 6, 0), (8, 8, 4, 0), (4, 2, 7, 1)])

bodies = st.builds(
    RegisterBrokerBody,
    # most topics of a broker have equal queues
    topic_configs=st.builds(
        lambda names, first, others: tuple(
            TopicConfig(name, *queues) for name, queues in zip(names, [first] + [others] * len(names), strict=False)
        ),
        st.sampled_from(  # the last one names a topic twice
            [TOPICS, TOPICS[:4], TOPICS[2:], TOPICS[:2], TOPICS[1:2], [], ["t0", "t1", "t0", "t1"]]
        ),
        QUEUES,
        QUEUES,
    ),
    data_version=st.none() | st.builds(DataVersion, st.integers(0, 1), st.integers(0, 1)),
    mappings=st.dictionaries(
        st.sampled_from(TOPICS),
        st.sampled_from([TopicQueueMappingInfo(epoch=1), TopicQueueMappingInfo(epoch=2, curr_id_map={0: 0, 1: 1})]),
    )
    | st.just({}),
    filter_servers=st.sampled_from([None, None, (), ("f1",)]),
)
# a master with two slaves, a single master, and any broker at any address
USUAL = [("b1", 0, "x1"), ("b1", 1, "x2"), ("b1", 2, "x3"), ("b2", 0, "x4")]
identities = st.sampled_from(USUAL) | st.tuples(
    st.sampled_from(NAMES), st.sampled_from(IDS), st.sampled_from(ADDRESSES)
)
# one of the latest open connections, or one that has ended
connections = st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1])


class WitnessedLock(ReadWriteLock):
    """A lock that reports which task enters."""

    def __init__(self, entered: Callable[[], None]) -> None:
        super().__init__()
        self._entered = entered

    @asynccontextmanager
    async def write(self) -> Any:
        """Enter as the only writer and report it."""
        async with super().write():
            self._entered()
            yield


class Operation:
    """An operation under the lock, which decides when it gets the lock and shows its effect later."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.act = act
        # brokers that it decided to remove -> their live entries at that time
        self.leaving: dict[BrokerAddrInfo, BrokerLiveInfo] = {}

    def decide(self, observer: "RouteMachine") -> None:
        """Decide as soon as the operation has the lock."""

    def may_remove(self, observer: "RouteMachine", key: BrokerAddrInfo) -> bool:
        """Return true if a broker that it decided to remove may still be removed."""
        return True

    def ended(self, observer: "RouteMachine", outcome: Any) -> None:
        assert not isinstance(outcome, ResponseError)
        for key in self.leaving:
            assert not self.may_remove(observer, key), f"{key} is still there"


class Register(Operation):
    """Request 103."""

    def __init__(self, asked: Registration, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.asked = asked
        self.refusal: type[ResponseError] | None = None

    def decide(self, observer: "RouteMachine") -> None:
        """Decide on the refusal; another broker at this address is removed first."""
        self.refusal = observer.model.refusal(self.asked, observer.is_open)
        live = observer.model.live_brokers.get(self.asked.key)
        is_renamed = live is not None and live.broker_name != self.asked.broker_name
        if live is not None and is_renamed and self.refusal is None and observer.is_open(self.asked.connection_id):
            self.leaving[self.asked.key] = live

    def ended(self, observer: "RouteMachine", outcome: Any) -> None:
        """The registration counts if its connection is still open; otherwise another broker at its address stays."""
        if self.refusal is not None:
            assert self.refusal is type(outcome)
            return
        expected = RegisterResult()
        if observer.is_open(self.asked.connection_id):
            for key in self.leaving:
                observer.model.remove(key)
            expected = observer.model_registers(self.asked)
        assert outcome == expected


class Unregister(Operation):
    """Request 104."""

    def __init__(self, asked: Registration, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.asked = asked

    def decide(self, observer: "RouteMachine") -> None:
        """Remove the broker if the request is from its own registration or a later one."""
        asked, live = self.asked, observer.model.live_brokers.get(self.asked.key)
        if live is None or live.broker_name != asked.broker_name or live.connection_id > asked.connection_id:
            return
        is_later = (live.registration_seq or 0) > (asked.registration_seq or 0)
        if asked.agent_id != live.agent_id or (asked.agent_id is not None and is_later):
            return
        self.leaving[asked.key] = live

    def may_remove(self, observer: "RouteMachine", key: BrokerAddrInfo) -> bool:
        """True unless the broker has registered again."""
        return observer.model.live_brokers[key].generation == self.leaving[key].generation


class Close(Operation):
    """The end of a connection."""

    def __init__(self, connection_id: int, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.connection_id = connection_id

    def decide(self, observer: "RouteMachine") -> None:
        """Remove all brokers of the connection, those that expire first before the others."""
        by_expiry = sorted(observer.model.live_brokers.items(), key=lambda broker: broker[1].expires_at())
        self.leaving = {key: live for key, live in by_expiry if live.connection_id == self.connection_id}

    def may_remove(self, observer: "RouteMachine", key: BrokerAddrInfo) -> bool:
        """True unless a newer connection has sent a heartbeat of the broker."""
        return observer.model.live_brokers[key].connection_id == self.connection_id


class Scan(Operation):
    """A scan for silent brokers."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(act)
        self.has_searched = False

    def decide(self, observer: "RouteMachine") -> None:
        """Remove the brokers that are silent for more than their expiry when the scan gets the lock for the first time.

        The scan gets the lock again for each few brokers that it removes, and searches no more then.
        """
        if not self.has_searched:
            self.has_searched = True
            self.leaving = observer.model.silent(observer.now)

    def may_remove(self, observer: "RouteMachine", key: BrokerAddrInfo) -> bool:
        """True unless the broker has sent a heartbeat."""
        return observer.model.live_brokers[key].last_update == self.leaving[key].last_update


class Change(Operation):
    """A change by an operator, which takes effect in one step at its end."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]], on_model: Callable[[RouteModel], Any]) -> None:
        super().__init__(act)
        self.on_model = on_model

    def ended(self, observer: "RouteMachine", outcome: Any) -> None:
        assert self.on_model(observer.model) == outcome


class RouteMachine(RuleBasedStateMachine):
    """A manager and a model with the same history."""

    @initialize()
    def start(self) -> None:
        """Start with empty tables and one open connection."""
        self.runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        # small enough that histories reach both limits
        self.scene = RouteScene(RouteTables(spare_topics=4))
        self.manager = self.scene.manager
        self.manager.lock = WitnessedLock(self.entered)
        self.scene.json_cache.memory.max_bytes = 2_000
        self.model = RouteModel()
        self.late_seconds = 0.0
        self.connections = [1]
        # tasks under way and their operations
        self.operations: dict[asyncio.Task[None], Operation] = {}
        # sent registrations, each with a digest of its own
        self.sent: list[Registration] = []
        self.sequence = 0
        # revision and routes of two clients
        self.clients: list[tuple[int, dict[str, Any]]] = [(0, dict.fromkeys(TOPICS)) for _ in range(2)]
        self.membership_seen: tuple[int, Any] = (0, self.members())
        # live brokers and revisions according to the effects so far
        self.reported_alive: set[BrokerAddrInfo] = set()
        self.reported_revisions: set[int] = set()

    def teardown(self) -> None:
        """Finish all operations and check the tables once more."""
        if not hasattr(self, "runner"):
            return
        try:
            self.finished()
            self.check()
        finally:
            self.runner.close()

    # -- operations ---------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Liveness time as the model counts it."""
        return self.scene.clock.monotonic() - self.late_seconds

    def is_open(self, connection_id: int) -> bool:
        """Return true if a connection has not ended."""
        return connection_id not in self.scene.closed

    def begin(self, operation: Operation) -> None:
        """Start an operation and let it run until it first waits."""

        async def start() -> None:
            task = asyncio.create_task(self.perform(operation))
            self.operations[task] = operation
            await asyncio.sleep(0)

        self.runner.run(start())
        self.after_iteration()

    async def perform(self, operation: Operation) -> None:
        """Run the operation; the model follows at the moment of its end."""
        outcome: Any
        try:
            outcome = await operation.act()
        except ResponseError as error:
            outcome = error
        self.catch_up(operation)
        operation.ended(self, outcome)

    def entered(self) -> None:
        """Let the operation of the running task decide, which has just got the lock."""
        task = asyncio.current_task()
        assert task is not None
        self.model.end_write_removals(self.now)
        self.operations[task].decide(self)

    def after_iteration(self) -> None:
        """Let the model follow the tables, and raise the error of a failed operation."""
        for task, operation in list(self.operations.items()):
            if task.done():
                del self.operations[task]
                task.result()
            else:
                self.catch_up(operation)

    def catch_up(self, operation: Operation) -> None:
        """Remove from the model what the operation removed from the tables, which must still have been allowed."""
        for key in list(operation.leaving):
            if key not in self.model.live_brokers:
                # Another operation has removed it.
                del operation.leaving[key]
            elif key not in self.manager.tables.broker_live_table:
                if not operation.may_remove(self, key):
                    # Another operation may have removed it, between two brokers that a scan removes.
                    others = [other for other in self.operations.values() if key in other.leaving]
                    assert any(other.may_remove(self, key) for other in others), f"late removal of {key}"
                    continue
                self.model.remove(key, unregistered=isinstance(operation, Unregister))
                del operation.leaving[key]

    def model_registers(self, asked: Registration) -> RegisterResult:
        """Register in the model."""
        return self.model.register(asked, self.scene.options, self.now, self.is_open)

    def members(self) -> Any:
        """The contents of a snapshot."""
        live_brokers = {(key, live.broker_name, live.broker_id) for key, live in self.model.live_brokers.items()}
        return live_brokers, set(self.model.write_removed)

    # -- rules: operations under the lock -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(
        cluster=st.sampled_from([*CLUSTERS, "c1", "c1"]),
        identity=identities,
        body=bodies,
        connection=connections,
        acts=st.sampled_from([None, False, True, True]),
        zone=st.sampled_from([None, None, ZONE]),
        expiry=st.sampled_from([120.0, 120.0, 10.0]),
    )
    def register(
        self,
        cluster: str,
        identity: tuple[str, int, str],
        body: RegisterBrokerBody,
        connection: int,
        acts: bool | None,
        zone: str | None,
        expiry: float,
    ) -> None:
        """A RocketMQ broker registers."""
        name, broker_id, addr = identity
        asked = Registration(
            cluster, name, broker_id, addr, body, self.connection(connection), expiry, f"ha-{addr}", zone, acts
        )
        self.send(asked)

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(identity=identities, body=bodies, connection=connections, agent=st.sampled_from(["p", "q"]))
    def register_natively(
        self, identity: tuple[str, int, str], body: RegisterBrokerBody, connection: int, agent: str
    ) -> None:
        """A native agent registers all its topics."""
        self.sequence += 1
        asked = Registration("c1", *identity, body, self.connection(connection), 120.0, is_native=True)
        self.send(replace(asked, enable_acting_master=True, agent_id=agent, registration_seq=self.sequence))

    @precondition(lambda self: self.natives() and len(self.operations) < MAX_OPERATIONS)
    @rule(
        which=st.integers(0, 200),
        body=bodies,
        deleted=st.sets(st.sampled_from(TOPICS), max_size=3),
        connection=connections,
        agent=st.sampled_from([None, None, "q"]),
    )
    def register_delta(
        self, which: int, body: RegisterBrokerBody, deleted: set[str], connection: int, agent: str | None
    ) -> None:
        """A native agent registers changed topics; the broker may be gone when the operation gets the lock."""
        natives = self.natives()
        key = natives[which % len(natives)]
        live = self.model.live_brokers[key]
        self.sequence += 1
        asked = Registration(
            key.cluster_name,
            live.broker_name,
            live.broker_id,
            key.broker_addr,
            replace(body, deleted_topics=sorted(deleted - {item.topic_name for item in body.topic_configs})),
            self.connection(connection),
            120.0,
            enable_acting_master=True,
            is_native=True,
            kind="delta",
            agent_id=agent or live.agent_id,
            registration_seq=self.sequence,
        )
        self.send(asked)

    def send(self, asked: Registration) -> None:
        """Register, and record the registration for a repetition."""
        if asked.kind == "full":
            asked = replace(asked, digest=b"%d" % len(self.sent))
            self.sent.append(asked)
        self.begin(Register(asked, lambda: self.manager.register(asked)))

    @precondition(lambda self: self.sent and len(self.operations) < MAX_OPERATIONS)
    @rule(which=st.integers(0, 200), connection=connections)
    def register_again(self, which: int, connection: int) -> None:
        """A broker repeats a registration; if the manager takes it for unchanged, applying it changes nothing."""
        stored = [asked for asked in self.sent if self.manager.tables.digests.of_broker.get(asked.key) == asked.digest]
        choices = stored if stored and which % 4 else self.sent
        self.repeat(choices[-1 - which % len(choices)], connection)

    def repeat(self, asked: Registration, connection: int) -> None:
        """Send a registration again."""
        self.sequence += 1
        asked = replace(asked, connection_id=self.connection(connection))
        if asked.is_native:
            asked = replace(asked, registration_seq=self.sequence)
        assert asked.digest is not None
        revision = self.manager.revisions.revision
        result = self.manager.register_unchanged(asked.key, asked.digest, asked.connection_id, asked.registration_seq)
        if result is None:
            self.begin(Register(asked, lambda: self.manager.register(asked)))
            return
        assert revision == self.manager.revisions.revision
        assert self.is_open(asked.connection_id)
        applied = copy.deepcopy(self.model)
        assert applied.refusal(asked, self.is_open) is None
        assert applied.register(asked, self.scene.options, self.now, self.is_open) == result
        fields = {"generation": self.model.next_generation(), "registration_seq": asked.registration_seq}
        self.model.refresh(asked.key, self.now, asked.connection_id, **fields)
        self.model.other_connections = applied.other_connections
        assert self.model.facts() == applied.facts()

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(
        which=st.integers(0, 200),
        connection=connections,
        age=st.integers(0, 3),
        name=st.none() | st.sampled_from(NAMES),
        has_agent_id=st.sampled_from([True, True, False]),
    )
    def unregister(self, which: int, connection: int, age: int, name: str | None, has_agent_id: bool) -> None:
        """A broker unregisters, perhaps by a request that was sent long ago."""
        key, live = self.some_broker(which)
        seq = None if live is None or live.registration_seq is None else live.registration_seq - age
        asked = Registration(
            key.cluster_name,
            name or (NAMES[0] if live is None else live.broker_name),
            0,
            key.broker_addr,
            RegisterBrokerBody(),
            self.connection(connection),
            120.0,
            agent_id=None if live is None or not has_agent_id else live.agent_id,
            registration_seq=seq,
        )
        self.begin(
            Unregister(
                asked,
                lambda: self.manager.unregister(
                    key,
                    asked.broker_name,
                    asked.connection_id,
                    agent_id=asked.agent_id,
                    registration_seq=asked.registration_seq,
                ),
            )
        )

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(connection=connections)
    def close(self, connection: int) -> None:
        """A connection ends, more often than not that of a broker."""
        carrying = [live.connection_id for live in self.model.live_brokers.values()]
        number = carrying[connection % len(carrying)] if carrying and connection else self.connection(connection)
        if self.is_open(number):
            self.scene.closed.add(number)

            async def end() -> None:
                self.model.close(number, self.now, self.is_open)
                await self.manager.connection_closed(number)

            self.begin(Close(number, end))

    @precondition(lambda self: not any(isinstance(operation, Scan) for operation in self.operations.values()))
    @rule(seconds=st.sampled_from([0.0, 10.0, 120.0, 120.1]))
    def scan(self, seconds: float) -> None:
        """A scan starts."""
        self.scene.pass_time(seconds)
        self.begin(Scan(self.manager.evict_silent))

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, *CLUSTERS, "nowhere"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Request 216."""
        self.begin(
            Change(lambda: self.manager.delete_topic(topic, cluster), lambda model: model.delete_topic(topic, cluster))
        )

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(
        topic=st.sampled_from(TOPICS),
        queues=st.lists(
            st.builds(
                queue_data, st.sampled_from([*NAMES, "unknown"]), st.sampled_from([2, 8]), st.sampled_from([4, 6])
            ),
            max_size=3,
        ),
    )
    def register_topic(self, topic: str, queues: list[Any]) -> None:
        """Request 217."""
        self.begin(
            Change(
                lambda: self.manager.register_topic(topic, queues), lambda model: model.register_topic(topic, queues)
            )
        )

    @precondition(lambda self: len(self.operations) < MAX_OPERATIONS)
    @rule(name=st.sampled_from([*NAMES, "unknown"]), takes=st.booleans())
    def change_perms(self, name: str, takes: bool) -> None:
        """Requests 205 and 327."""
        self.begin(
            Change(lambda: self.manager.wipe_write_perm(name), lambda model: model.wipe(name))
            if takes
            else Change(lambda: self.manager.add_write_perm(name), lambda model: model.add(name))
        )

    # -- rules: requests without the lock -----------------------------------------------------------------------------

    @rule()
    def connect(self) -> None:
        """A peer connects."""
        self.connections.append(self.connections[-1] + 1)

    @precondition(lambda self: any(operation.leaving for operation in self.operations.values()))
    @rule(which=st.integers(0, 200), connection=connections, registers=st.booleans())
    def heartbeat_during_a_removal(self, which: int, connection: int, registers: bool) -> None:
        """A broker that is about to be removed sends a heartbeat or registers."""
        leaving = [key for operation in self.operations.values() for key in operation.leaving]
        key = leaving[which % len(leaving)]
        index = next((i for i, sent in enumerate(reversed(self.sent)) if sent.key == key), None)
        if registers and index is not None and len(self.operations) < MAX_OPERATIONS:
            self.repeat(self.sent[-1 - index], connection)
        else:
            self.send_heartbeat(key, connection, None)

    @rule(which=st.integers(0, 200), connection=connections, state=st.sampled_from([None, {"depth": 1}]))
    def heartbeat(self, which: int, connection: int, state: dict[str, int] | None) -> None:
        """Request 904, or 322 without a state, perhaps over a connection that has ended."""
        key, _ = self.some_broker(which)
        self.send_heartbeat(key, connection, state)

    def send_heartbeat(self, key: BrokerAddrInfo, connection: int, state: dict[str, int] | None) -> None:
        """Send a heartbeat."""
        live = self.model.live_brokers.get(key)
        revision = self.manager.revisions.revision
        number = self.connection(connection)
        if state is None:
            stored = self.scene.data_version(key, number)
            assert stored == (None if live is None else live.data_version)
        else:
            assert (live is None) == (self.manager.touch(key, number, state) is None)
        assert revision == self.manager.revisions.revision
        if live is not None:
            self.model.heartbeat(key, self.now, number, state, self.is_open)

    @rule(seconds=st.sampled_from([0.1, 10.0, 60.0, 119.9, 120.0, 120.1]))
    def pass_time(self, seconds: float) -> None:
        """Time passes."""
        self.scene.pass_time(seconds)

    # one task checks for lateness and scans, so no scan is under way here
    @precondition(lambda self: not self.operations)
    @rule(slept=st.sampled_from([0.2, 1.0, 300.0]), measured=st.sampled_from([0.2, 1.0, 300.0]))
    def be_late(self, slept: float, measured: float) -> None:
        """The process was stopped; the measured time may be shorter, or longer than the real one."""
        self.scene.pass_time(slept)
        granted = self.manager.was_stopped(measured)
        assert granted <= measured
        if granted:
            self.late_seconds += granted
            for key, live in self.model.live_brokers.items():
                if live.last_update > self.now:
                    self.model.refresh(key, self.now, live.connection_id)

    @rule(topic=st.sampled_from(TOPICS), value=st.sampled_from(["b1:4", "b2:8"]))
    def change_order(self, topic: str, value: str) -> None:
        """An operator changes an order configuration."""
        self.scene.order_conf[topic] = value
        self.manager.routes_may_differ([topic])

    @rule(
        name=st.sampled_from(
            ["support_acting_master", "order_message_enable", "delete_topic_with_broker_registration"]
        ),
        value=st.booleans(),
    )
    def change_option(self, name: str, value: bool) -> None:
        """An operator changes a live setting."""
        if not self.operations:
            setattr(self.scene.options, name, value)
            self.manager.routes_may_differ()

    @rule(which=st.integers(0, 1))
    def pull(self, which: int) -> None:
        """A client pulls changed routes, and knows all current routes then."""
        since, routes = self.clients[which]
        changed = self.manager.revisions.changed_since(TOPICS, since)
        routes.update({topic: self.answer(topic) for topic in (TOPICS if changed is None else changed)})
        self.clients[which] = (self.manager.revisions.revision, routes)
        assert {topic: as_json(self.route(topic)) for topic in TOPICS} == routes

    @precondition(lambda self: self.operations)
    @rule()
    def step(self) -> None:
        """All operations run until they wait again."""
        self.runner.run(asyncio.sleep(0))
        self.after_iteration()

    @precondition(lambda self: self.operations)
    @rule()
    def finished(self) -> None:
        """All operations run to their end."""
        for _ in range(1_000):
            if not self.operations:
                return
            self.step()
        raise AssertionError(f"{len(self.operations)} operations hang: {self.manager.lock}")

    # -- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def check(self) -> None:
        """Tables and caches agree with the model, and no broker stays on a closed connection."""
        tables = self.manager.tables
        assert violations(tables) == []
        found = facts_of(tables)
        for table, expected in self.model.facts().items():
            assert found[table] == expected, f"{table}: {expected} is {found[table]}"
        for topic in TOPICS:
            route = self.route(topic)
            assert as_json(route) == self.answer(topic)
            native = self.scene.cached(self.scene.native_cache, topic)
            assert as_native(route) == (None if native is None else msgpack.unpackb(native, strict_map_key=False))
            here = self.scene.json_cache.find(topic, ZONE.upper())
            assert as_json(None if route is None else in_zones(route, [ZONE])) == (here and json.loads(here))
        if not self.operations:
            hanging = {key for key, live in self.model.live_brokers.items() if not self.is_open(live.connection_id)}
            assert not hanging

    @invariant()
    def check_effects(self) -> None:
        """The effects report every live broker and every revision."""
        for effect in self.scene.take_effects():
            if isinstance(effect, Registered):
                assert effect.is_new == (effect.key not in self.reported_alive)
                self.reported_alive.add(effect.key)
            elif isinstance(effect, Evicted):
                self.reported_alive.remove(effect.key)
            elif isinstance(effect, RouteChanged):
                self.reported_revisions.add(effect.revision)
        if not self.operations:
            assert self.reported_alive == self.model.live_brokers.keys()
            assert self.reported_revisions == set(range(1, self.manager.revisions.revision + 1))

    @invariant()
    def check_membership(self) -> None:
        """The membership number grows whenever the contents of a snapshot change."""
        before, seen = self.membership_seen
        now = (self.manager.membership, self.members())
        assert now[1] == seen or before < now[0]
        self.membership_seen = now

    # -- choices ------------------------------------------------------------------------------------------------------

    def connection(self, age: int) -> int:
        """One of the latest open connections, or for -1 one that has ended, if there is any."""
        if age < 0 and self.scene.closed:
            return max(self.scene.closed)
        still_open = [number for number in self.connections if self.is_open(number)]
        if not still_open:
            self.connect()
            return self.connections[-1]
        return still_open[-1 - age % len(still_open)]

    def natives(self) -> list[BrokerAddrInfo]:
        """Live brokers that speak the native protocol."""
        return sorted(key for key, live in self.model.live_brokers.items() if live.is_native)

    def some_broker(self, which: int) -> tuple[BrokerAddrInfo, BrokerLiveInfo | None]:
        """A live broker, or sometimes one that may not be live."""
        known = sorted(self.model.live_brokers)
        if not known or which % 5 == 0:
            found = BrokerAddrInfo(CLUSTERS[which % 2], ADDRESSES[which % 4])
        else:
            found = known[which % len(known)]
        return found, self.model.live_brokers.get(found)

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic in the model."""
        return self.model.route(topic, self.scene.options, self.scene.order_conf)

    def answer(self, topic: str) -> Any:
        """The decoded response of the server."""
        answer = self.scene.cached(self.scene.json_cache, topic)
        return answer and json.loads(answer)


# Members of a map have no order, so decoded responses are compared, not bytes.


def as_json(route: TopicRouteData | None) -> Any:
    """The decoded JSON response of a route."""
    return None if route is None else json.loads(JSON.encode(route))


def as_native(route: TopicRouteData | None) -> Any:
    """The decoded native response of a route."""
    return None if route is None else msgpack.unpackb(NATIVE.encode(route), strict_map_key=False)


@pytest.mark.hypothesis
@pytest.mark.usefixtures("small_chunks")
def test_any_history() -> None:
    """Tables, caches, revisions and fences are right after each step of any history."""
    run_state_machine_as_test(RouteMachine)
