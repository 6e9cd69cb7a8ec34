"""Entry point of every change to the route tables: it locks, plans, applies, then performs the effects.

The rule: *there is one lock; the only await under it is the yield between chunks, never I/O; effects are performed
after the lock is released.*

A change is planned in chunks under the write lock and then applied in one step, so that the tables are consistent
whenever the event loop runs other code. So readers need no lock, and neither do steps that never await (a heartbeat, an
unchanged registration). A planned removal checks the live entry again before it is applied, because such a step may
have come in between.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from namesrv.net.steps import run_in_steps
from namesrv.routeinfo.admission import (
    LimitExceededError,
    TableLimits,
    TableQuotas,
    TakeoverPolicy,
    check_registration,
    check_routes,
    check_shares,
    check_topics,
    displaced_by,
    over_quota,
)
from namesrv.routeinfo.connections import MAX_OTHER_CONNECTIONS, OtherConnection
from namesrv.routeinfo.effects import (
    Effect,
    Evicted,
    Fenced,
    HeldUp,
    OverQuota,
    Registered,
    RouteChanged,
    Scanned,
    TakeoverAttempted,
    Unregistered,
    WriteWiped,
)
from namesrv.routeinfo.eviction import plan_removal, silent_brokers
from namesrv.routeinfo.liveness import LivenessClock
from namesrv.routeinfo.records import (
    HEARTBEAT_SECONDS,
    BrokerAddrInfo,
    BrokerLiveInfo,
    Reason,
    RegisterResult,
    Registration,
    RouteOptions,
)
from namesrv.routeinfo.registration import master_of, plan_registration
from namesrv.routeinfo.rows import CHUNK_TOPICS, RowChanges, TopicRow, queues_of
from namesrv.routeinfo.shares import HeldRows, Owner
from namesrv.routeinfo.tables import Changes, Prepared, RouteTables
from namesrv.routeinfo.topics import plan_delete_topic, plan_perms, plan_register_topic
from namesrv.rwlock import ReadWriteLock
from namesrv_remoting.bodies.base import parts
from namesrv_remoting.bodies.route import QueueData
from namesrv_remoting.codes import MASTER_ID, PERM_READ, PERM_WRITE
from namesrv_remoting.errors import NoPermissionError, SystemBusyError
from namesrv_remoting.requests import AccessClass

# Minimum seconds between two notes of heartbeats over a connection that is not the broker's own: the note only decides
# which of several connections takes over.
OTHER_CONNECTION_NOTE_SECONDS: Final = 1.0
# Brokers removed in one write section; other tasks run between two sections. A broker with a few topics takes 0.2 ms.
REMOVALS_AT_ONCE: Final = 10
_NEVER: Final = float("inf")
_NO_OTHER_CONNECTIONS: Final[Mapping[int, OtherConnection]] = {}


class RouteInfoManager:
    """The tables, their lock, and one method for each request that changes them."""

    def __init__(  # noqa: PLR0913 - state and rules; callbacks are passed by keyword
        self,
        tables: RouteTables,
        liveness: LivenessClock,
        options: RouteOptions,
        limits: TableLimits,
        *,
        sink: Callable[[Effect], None],
        is_connected: Callable[[int], bool],
        network_of: Callable[[int], str] = lambda _: "",
        forget_responses: Callable[[], None] = lambda: None,
        on_late_heartbeat: Callable[[float], None] = lambda _: None,
        on_touch: Callable[[BrokerAddrInfo, BrokerLiveInfo, float], None] | None = None,
        on_publish: Callable[[int, RowChanges], None] | None = None,
        policy: TakeoverPolicy | None = None,
        quotas: TableQuotas | None = None,
    ) -> None:
        self.tables = tables
        self.lock = ReadWriteLock()
        self.revisions = tables.revisions
        self.options = options
        self.limits = limits
        self._policy = policy or TakeoverPolicy()
        self._quotas = quotas or TableQuotas()
        # Drops all cached responses, also those of unchanged rows.
        self._forget_responses = forget_responses
        # Grows whenever the set of live brokers or of removed write permissions changes, since a snapshot holds both
        # sets, and once when the wait for missing brokers of the last snapshot ends.
        self.membership = 0
        # Number of heartbeats of registered brokers.
        self.heartbeats = 0
        self.scans = 0
        # Number of changes of the options; a registration may be in the making meanwhile.
        self._option_changes = 0
        self._last_generation = 0
        # Brokers whose unregister requests wait for the lock.
        self._leaving: Counter[BrokerAddrInfo] = Counter()
        self._liveness = liveness
        self._sink = sink
        self._is_connected = is_connected
        # Returns the peer address of an open connection as limits count it, "" for a closed connection.
        self._network_of = network_of
        self._held_rows = HeldRows(tables)
        # Receives the seconds by which a heartbeat was late.
        self._on_late_heartbeat = on_late_heartbeat
        # Receives every heartbeat: the broker, its live entry, and the silence before. Heartbeats are too many to be
        # effects.
        self._on_touch = on_touch
        # Receives new rows and their revision, under the lock and before the rows get the revision; the callee must
        # only take notes.
        self._on_publish = on_publish

    def __repr__(self) -> str:
        return f"<RouteInfoManager [{self.tables!r} | revision {self.revisions.revision} | {self.lock!r}]>"

    def now(self) -> float:
        """Return the liveness seconds."""
        return self._liveness.now()

    def was_stopped(self, seconds: float) -> float:
        """Move every deadline after a stop of this process; return by how much, as `LivenessClock` decides."""
        table = self.tables.broker_live_table
        if not (granted := self._liveness.credit(seconds, (live.expiry_seconds for live in table.values()))):
            return granted
        now = self.now()
        for key, live in list(table.items()):
            if live.last_update > now:
                # The heartbeat arrived after the stop, but before the stop was credited.
                self.tables.set_live(key, live.seen(now, live.connection_id, None))
        self._sink(HeldUp(granted))
        return granted

    @contextlib.asynccontextmanager
    async def _changing(self, access_class: AccessClass = AccessClass.BROKER_CONTROL) -> AsyncIterator[list[Effect]]:
        """Open a write section with a list for its effects; the class is that of the request.

        The effects are performed after the section, also if it raises: they describe what was applied until then.
        """
        effects: list[Effect] = []
        try:
            async with self.lock.write():
                self._end_wipes(effects)
                yield effects
        except LimitExceededError as error:
            effects.append(OverQuota(access_class, error.reason, error.remark or "", is_refused=True))
            raise
        finally:
            for effect in effects:
                self._sink(effect)

    def _end_wipes(self, effects: list[Effect]) -> None:
        """End the removal of the write permission of brokers that have been gone for their expiry."""
        now = self.now()
        for name in [name for name, ends in self.tables.wiped.items() if ends < now]:
            del self.tables.wiped[name]
            self.membership += 1
            effects.append(WriteWiped(name, 0, is_wiped=False, reason="expired"))

    @contextlib.asynccontextmanager
    async def _removing(self, key: BrokerAddrInfo) -> AsyncIterator[list[Effect]]:
        """Open a write section for an unregister request; the broker's unchanged registrations wait for it."""
        with contextlib.ExitStack() as waiting:
            waiting.enter_context(self._noted_as_leaving(key))
            async with self._changing() as effects:
                waiting.close()
                yield effects

    @contextlib.contextmanager
    def _noted_as_leaving(self, key: BrokerAddrInfo) -> Iterator[None]:
        self._leaving[key] += 1
        try:
            yield
        finally:
            self._leaving[key] -= 1
            if not self._leaving[key]:
                del self._leaving[key]

    async def _prepared(self, changes: Changes) -> Prepared:
        await run_in_steps(self.revisions.settle())
        return await run_in_steps(self.tables.prepare(changes))

    async def register(self, registration: Registration) -> RegisterResult:
        """Apply a registration.

        Raises ResponseError if it is refused. Then it changes nothing: all checks come before the first change.
        """
        takeover, excess, result = None, None, RegisterResult()
        async with self._changing() as effects:
            if self._quotas.mode != "off" and (excess := await self._over_quota(registration)) is not None:
                effects.append(excess)
            if self._policy.takeover != "allow" and (takeover := self._takeover_by(registration)) is not None:
                effects.append(takeover)
            if not any(each is not None and each.is_refused for each in (takeover, excess)):
                result = await self._register(registration, effects)
        if takeover is not None and takeover.is_refused:
            raise _not_the_holder(takeover, "take its place")
        if excess is not None and excess.is_refused:
            raise SystemBusyError(excess.message)
        if len(registration.body.topic_configs) > CHUNK_TOPICS:
            # Freeing the replaced rows takes time as well: other tasks run first.
            await asyncio.sleep(0)
        return result

    async def _over_quota(self, registration: Registration) -> OverQuota | None:
        excess = await run_in_steps(over_quota(self.tables, registration, self.options, self._quotas))
        if excess is None:
            return None
        return OverQuota(AccessClass.BROKER_CONTROL, *excess, is_refused=self._quotas.mode == "enforce")

    def _takeover_by(self, registration: Registration) -> TakeoverAttempted | None:
        """Return the takeover that a registration attempts; a move over the broker's own connection is allowed."""
        key, on = registration.key, registration.connection_id
        found = [
            (other, live)
            for other, live in displaced_by(self.tables, registration)
            if self._is_held_by_another(other, live, on) and not _squats(other, live, registration)
        ]
        live = self.tables.broker_live_table.get(key)
        if live is not None and self._is_crowded(key, live, on) and not _squats(key, live, registration):
            found.append((key, live))
        return self._takeover(*found[0], registration.broker_name, registration.broker_addr, on) if found else None

    def _takeover(
        self, key: BrokerAddrInfo, live: BrokerLiveInfo, broker_name: str, broker_addr: str, on: int
    ) -> TakeoverAttempted:
        age = self.now() - live.last_update
        return TakeoverAttempted(key, live, broker_name, broker_addr, on, age, self._policy.takeover == "refuse")

    def _is_held_by_another(self, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int) -> bool:
        """True if the broker was lately seen over another open connection that is or was the broker's own.

        Any peer may register under the broker's name and address, which moves the broker to the newer connection; the
        former connection continues to count.
        """
        now = self.now()
        if live.connection_id != on and self._is_connected(live.connection_id) and not live.is_suspect(now):
            return True
        return any(number != on for number in self._former_connections(key, live, now))

    def _is_crowded(self, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int) -> bool:
        """True if one more connection would push an earlier connection of the broker out of the remembered ones."""
        if on == live.connection_id or on in self.tables.connections.others.get(key, _NO_OTHER_CONNECTIONS):
            return False
        return len(self._former_connections(key, live, self.now())) >= MAX_OTHER_CONNECTIONS

    def _former_connections(self, key: BrokerAddrInfo, live: BrokerLiveInfo, now: float) -> list[int]:
        """Return open connections other than the broker's own over which the broker registered and was lately seen."""
        return [
            number
            for number, other in self.tables.connections.others.get(key, _NO_OTHER_CONNECTIONS).items()
            if other.registered and not live.is_suspect(now, other.last_seen) and self._is_connected(number)
        ]

    async def _register(self, registration: Registration, effects: list[Effect]) -> RegisterResult:
        """Check a registration, remove the brokers whose places it has, and apply it.

            check      admission.py       older than what is known, over a limit or a share: refused, nothing changes
              |
            displace   eviction.py        squatters of other accounts, and the broker that had the address before
              |
            plan       registration.py    Changes: rows, groups, mappings, the live entry, as values
              |
            prepare    tables.py          Prepared: what indexes and counts become; in steps of a millisecond
              |
            apply      tables.py          all tables in one step; effects follow when the lock is released

        Other tasks may run during every step but the last. Steps without the lock may come in between: heartbeats,
        unchanged registrations, closed connections that move a broker, and renewed routes. If the connection closes
        meanwhile, the registration itself is not applied, since no close event would follow; a broker that was
        displaced before stays removed.
        """
        is_connected = partial(self._is_connected, registration.connection_id)
        option_changes = self._option_changes
        await self._check(registration)
        if is_connected():
            await self._displace(registration, effects)
        self._last_generation += 1
        changes, result = await run_in_steps(
            plan_registration(self.tables, registration, self.options, self.now(), self._last_generation)
        )
        prepared = await self._prepared(changes)
        if not is_connected():
            return RegisterResult()
        # A plan that was made under former options must be made anew: the next equal registration is applied again.
        digest = registration.digest if option_changes == self._option_changes else None
        self._take_in(registration, prepared, effects, digest)
        return result

    async def _check(self, registration: Registration) -> None:
        """Refuse a registration that contradicts the tables or exceeds a limit or share. Raises ResponseError."""
        tables, options, limits = self.tables, self.options, self.limits
        await run_in_steps(check_registration(tables, registration, options, limits, is_connected=self._is_connected))
        owners, held = self._owners(registration), self._held_rows.of
        await run_in_steps(check_shares(tables, registration, options, limits, owners=owners, held=held))

    async def _displace(self, registration: Registration, effects: list[Effect]) -> None:
        """Remove the brokers in whose places a broker registers: squatters, and the former broker at its address."""
        table = self.tables.broker_live_table
        for cluster_name, broker_addr in registration.displaces:
            key = BrokerAddrInfo(cluster_name, broker_addr)
            squatter = table.get(key)
            if squatter is not None and _squats(key, squatter, registration):
                await self._remove(key, squatter, "superseded", effects, generation=squatter.generation)
        former = table.get(registration.key)
        is_other = former is not None and former.broker_name != registration.broker_name
        if former is not None and is_other and self._is_connected(registration.connection_id):
            # The process at this address was another broker before, whose entry would stay for ever.
            await self._remove(registration.key, former, "superseded", effects, broker_name=former.broker_name)

    def _owners(self, registration: Registration) -> list[Owner]:
        """Return the peer address and the account whose shares of the tables a registration counts towards."""
        network, account = self._network_of(registration.connection_id), registration.account
        owners = [
            Owner("address", network, lambda live: self._network_of(live.connection_id) == network),
            Owner("account", account, lambda live: live.account == account),
        ]
        return [owner for owner in owners if owner.name]

    def _take_in(
        self, registration: Registration, prepared: Prepared, effects: list[Effect], digest: bytes | None
    ) -> None:
        key, now, table = registration.key, self.now(), self.tables.broker_live_table
        before, on = table.get(key), registration.connection_id
        if before is not None and before.connection_id > on and self._is_connected(before.connection_id):
            # A registration over a newer connection was applied first: the broker stays there when the older connection
            # closes.
            on = before.connection_id
        changes = prepared.changes
        changes.live[key] = changes.live[key].seen(now, on, None if before is None else before.state)
        effects.extend(
            Evicted(displaced, table[displaced], "superseded", now - table[displaced].last_update)
            for displaced in changes.dropped
        )
        group_before = self.tables.broker_addr_table.get(registration.broker_name)
        if registration.broker_name in self.tables.wiped and (
            registration.broker_id == MASTER_ID or group_before is None
        ):
            self.tables.wiped[registration.broker_name] = _NEVER
        if self._apply(prepared, effects, registration.broker_name):
            # Two brokers of a group may register topics, a master and a broker with an id below 0: the other one's next
            # registration is applied again, even if unchanged.
            self.tables.forget_digests((registration.broker_name,))
        live = table[key]
        if before is not None:
            self._note_former_connection(key, before, on)
            if registration.connection_id != on:
                self.tables.connections.note_other(
                    key, registration.connection_id, OtherConnection(registered=True, last_seen=now)
                )
        if digest is None:
            self.tables.digests.pop(key, None)
        else:
            self.tables.digests[key] = digest
        self.membership += before is None or bool(changes.dropped) or before.broker_id != live.broker_id
        silent = 0.0 if before is None else now - before.last_update
        topics = len(registration.body.topic_configs)
        effects.append(Registered(key, live, registration.kind, topics, before is None, silent, before))
        if changes.notice is not None:
            effects.append(changes.notice)

    def register_unchanged(
        self, key: BrokerAddrInfo, digest: bytes, connection_id: int, registration_seq: int | None
    ) -> RegisterResult | None:
        """Refresh the live entry of a broker whose registration is unchanged; None if it is not, or must be checked."""
        live = self.tables.broker_live_table.get(key)
        if live is None or self.tables.digests.get(key) != digest or connection_id < live.connection_id:
            return None
        if connection_id != live.connection_id and self._policy.takeover != "allow":
            # The takeover policy decides about a move to another connection: the dispatcher handles the registration.
            return None
        if not self._is_connected(connection_id):
            # The connection closed after the request was received.
            return None
        if key in self._leaving:
            # An earlier unregister request of the broker still waits for the lock.
            return None
        now = self.now()
        self._last_generation += 1
        refreshed = replace(
            live,
            last_update=now,
            connection_id=connection_id,
            generation=self._last_generation,
            registration_seq=live.registration_seq if registration_seq is None else registration_seq,
        )
        self.tables.set_live(key, refreshed)
        self._note_former_connection(key, live, connection_id)
        topics = len(self.tables.topics.of_broker.get(live.broker_name, ()))
        self._sink(Registered(key, refreshed, "unchanged", topics, False, now - live.last_update, live))  # noqa: FBT003
        addrs = self.tables.broker_addr_table[live.broker_name].broker_addrs
        return master_of(self.tables, key.cluster_name, addrs, live.broker_id)

    def _note_former_connection(self, key: BrokerAddrInfo, before: BrokerLiveInfo, on: int) -> None:
        # The broker has registered over another connection; its former connection is remembered, since it may yet prove
        # to be the right one.
        if before.connection_id != on and self._is_connected(before.connection_id):
            self.tables.connections.note_other(
                key, before.connection_id, OtherConnection(registered=True, last_seen=before.last_update)
            )

    def touch(
        self, key: BrokerAddrInfo, connection_id: int, state: Mapping[str, Any] | None = None
    ) -> BrokerLiveInfo | None:
        """Count a heartbeat; return the live entry, or None if the broker is unknown."""
        live = self.tables.broker_live_table.get(key)
        if live is None:
            return None
        liveness = self._liveness
        now = liveness.monotonic() - liveness.late_seconds
        silent = now - live.last_update
        self.heartbeats += 1
        if silent > HEARTBEAT_SECONDS:
            self._on_late_heartbeat(silent - HEARTBEAT_SECONDS)
        if connection_id != live.connection_id:
            others = self.tables.connections.others.get(key, _NO_OTHER_CONNECTIONS)
            other = others.get(connection_id)
            if (
                len(others) < MAX_OTHER_CONNECTIONS
                if other is None
                else now - other.last_seen >= OTHER_CONNECTION_NOTE_SECONDS
            ):
                connection_id = self._connection_after_heartbeat(key, live, connection_id, now)
            else:
                # The connection is noted already, or too many are; if the broker's own connection closes, a noted one
                # takes over.
                connection_id = live.connection_id
        seen = live.seen(now, connection_id, state)
        if seen.connection_id == live.connection_id:
            # The deadline moves, and the indexes stay as they are.
            self.tables.broker_live_table[key] = seen
        else:
            self.tables.set_live(key, seen)
        if self._on_touch is not None:
            self._on_touch(key, seen, silent)
        return seen

    def _connection_after_heartbeat(
        self, key: BrokerAddrInfo, live: BrokerLiveInfo, connection_id: int, now: float
    ) -> int:
        """Return the broker's connection after a heartbeat over a connection that is not its own.

        Any peer may name any broker in a heartbeat, so a heartbeat does not move a broker whose own connection is open.
        """
        if not self._is_connected(connection_id):
            # The connection closed after the request was received: no close event would follow.
            return live.connection_id
        if not self._is_connected(live.connection_id):
            return connection_id
        self.tables.connections.note_other(key, connection_id, OtherConnection(registered=False, last_seen=now))
        return live.connection_id

    def is_registered(
        self,
        key: BrokerAddrInfo,
        broker_name: str,
        broker_id: str | int | None,
        agent_id: str | None,
        connection_id: int,
    ) -> bool:
        """True if a native heartbeat matches the registered broker; otherwise its sender has to register again.

        A heartbeat over an older connection than the broker's own does not match: another process may have registered
        in the agent's name.
        """
        live = self.tables.broker_live_table.get(key)
        return (
            live is not None
            and live.broker_name == broker_name
            and (broker_id is None or broker_id == live.broker_id or str(broker_id) == str(live.broker_id))
            and (agent_id is None or agent_id == live.agent_id)
            and (connection_id >= live.connection_id or not self._is_connected(live.connection_id))
        )

    async def unregister(
        self,
        key: BrokerAddrInfo,
        broker_name: str,
        connection_id: int,
        *,
        agent_id: str | None = None,
        registration_seq: int | None = None,
    ) -> bool:
        """Remove a broker at its own request, unless a newer registration exists; return True if it is removed.

        Raises NoPermissionError if takeovers are refused and the broker is in use on another open connection.
        """
        takeover, is_out = None, False
        async with self._removing(key) as effects:
            live = self.tables.broker_live_table.get(key)
            if live is None or live.broker_name != broker_name:
                return False
            # The broker of an agent leaves only by a request of that agent.
            is_stale = (
                live.connection_id > connection_id
                or live.agent_id != agent_id
                or (agent_id is not None and (live.registration_seq or 0) > (registration_seq or 0))
            )
            if is_stale:
                effects.append(Fenced(key, live, "unregistered"))
                return False
            if self._policy.takeover != "allow" and self._is_held_by_another(key, live, connection_id):
                takeover = self._takeover(key, live, broker_name, key.broker_addr, connection_id)
                effects.append(takeover)
            if takeover is None or not takeover.is_refused:
                is_out = await self._remove(key, live, "unregistered", effects, generation=live.generation)
        if takeover is not None and takeover.is_refused:
            raise _not_the_holder(takeover, "remove it")
        return is_out

    def is_anyone_overdue(self) -> bool:
        """True if a scan would find a broker whose expiry is over."""
        return bool(silent_brokers(self.tables, self.now()))

    async def evict_silent(self) -> int:
        """Evict every broker whose expiry is over; return their number."""
        async with self._changing() as effects:
            now = self.now()
            self.scans += 1
            effects.append(Scanned(self.scans, now, len(self.tables.broker_live_table)))
            due = silent_brokers(self.tables, now)
            evicted = await self._evict(due[:REMOVALS_AT_ONCE], effects)
        for some in parts(due[REMOVALS_AT_ONCE:], REMOVALS_AT_ONCE):
            await asyncio.sleep(0)
            async with self._changing() as effects:
                evicted += await self._evict(some, effects)
        return evicted

    async def _evict(self, due: Sequence[tuple[BrokerAddrInfo, BrokerLiveInfo]], effects: list[Effect]) -> int:
        """Evict these silent brokers, unless a heartbeat or removal came later; return the number of evictions."""
        evicted = 0
        for key, found in due:
            live = self.tables.broker_live_table.get(key)
            # The removal is fenced by the time of the last heartbeat only: a change of the connection alone is no sign
            # of life.
            if live is not None:
                evicted += await self._remove(key, live, "silent", effects, last_update=found.last_update)
        return evicted

    def leave_connection(self, connection_id: int) -> None:
        """Move the brokers of a closed connection to an open connection over which they were seen before."""
        tables, now = self.tables, self.now()
        tables.forget_connection(connection_id)
        for key in list(tables.connections.brokers_on.get(connection_id, ())):
            live = tables.broker_live_table[key]
            # A connection without a heartbeat for the whole expiry only looks open.
            others = [
                (other, number)
                for number, other in tables.connections.others.get(key, {}).items()
                if self._is_connected(number) and other.last_seen + live.expiry_seconds >= now
            ]
            if others:
                tables.set_live(key, live.seen(live.last_update, max(others)[1], None))

    async def connection_closed(self, connection_id: int) -> None:
        """Evict all brokers of a closed connection for which no other open connection is noted."""
        self.leave_connection(connection_id)
        while connection_id in self.tables.connections.brokers_on:
            async with self._changing() as effects:
                for key in sorted(self.tables.connections.brokers_on.get(connection_id, ()))[:REMOVALS_AT_ONCE]:
                    live = self.tables.broker_live_table[key]
                    await self._remove(key, live, "disconnected", effects, connection_id=connection_id)
            if connection_id in self.tables.connections.brokers_on:
                await asyncio.sleep(0)

    async def _remove(
        self, key: BrokerAddrInfo, live: BrokerLiveInfo, reason: Reason, effects: list[Effect], **fence: object
    ) -> bool:
        """Remove a broker, unless the `fence` values of its live entry changed while the removal was planned."""
        changes = await run_in_steps(plan_removal(self.tables, key, live, self.options))
        prepared = await self._prepared(changes)
        latest = self.tables.broker_live_table[key]
        scan = self.scans if reason == "silent" else None
        if any(getattr(latest, name) != value for name, value in fence.items()):
            effects.append(Fenced(key, latest, reason, scan))
            return False
        if reason == "unregistered":
            effects.append(Unregistered(key, latest))
        self._apply(prepared, effects, latest.broker_name)
        self.membership += 1
        effects.append(Evicted(key, latest, reason, self.now() - latest.last_update, scan))
        self._broker_gone(latest, reason, effects)
        if changes.notice is not None:
            effects.append(changes.notice)
        return True

    def _broker_gone(self, live: BrokerLiveInfo, reason: Reason, effects: list[Effect]) -> None:
        """Keep, end or limit a removed write permission after a master, or the last broker of its group, has left."""
        name, wiped = live.broker_name, self.tables.wiped
        is_last = name not in self.tables.broker_addr_table
        if name not in wiped or not (live.broker_id == MASTER_ID or is_last):
            return
        if reason == "unregistered":
            del wiped[name]
            topics = len(self.tables.topics.of_broker.get(name, ()))
            effects.append(WriteWiped(name, topics, is_wiped=False, reason="unregistered"))
        elif wiped[name] == _NEVER:
            wiped[name] = live.expires_at()

    def stop_waiting_for_brokers(self, *, is_any_missing: bool) -> None:
        """End the wait for the brokers of the previous boot."""
        # A new snapshot is due: the file still names missing brokers, and the next start would wait for them again.
        self.membership += is_any_missing

    async def delete_topic(self, topic: str, cluster_name: str | None) -> None:
        """Remove a topic, or only its queues on one cluster's brokers; unknown names change nothing."""
        async with self._changing() as effects:
            row = self.tables.topic_queue_table.get(topic)
            await self._change_topic(plan_delete_topic(self.tables, topic, cluster_name), row, effects)

    async def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> None:
        """Set a topic's queues on known brokers. Raises LimitExceededError."""
        async with self._changing(AccessClass.ADMIN_WRITE) as effects:
            changes = plan_register_topic(self.tables, topic, queue_datas)
            row = changes.rows.get(topic)
            known = self.tables.topics.of_broker
            added = sum(topic not in known.get(queues.broker_name, {}) for queues in queues_of(row))
            if added:
                check_routes(self.tables, self.limits, added)
            for queues in queues_of(row):
                await run_in_steps(check_topics(self.tables, self.limits, queues.broker_name, [topic], 1))
            await self._change_topic(changes, row, effects)

    async def _change_topic(self, changes: Changes, row: TopicRow | None, effects: list[Effect]) -> None:
        prepared = await self._prepared(changes)
        self.tables.forget_digests(queues.broker_name for queues in queues_of(row))
        self._apply(prepared, effects)

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker.

        The permission returns when it is added, when the broker unregisters, or after the broker was gone for its
        expiry; a closed connection does not restore it.

        Returns the number of the broker's topics, including topics that were not writable before.
        """
        return await self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE, wiped=True)

    async def add_write_perm(self, broker_name: str) -> int:
        """Set all topics of a broker to read and write permission (no other bit, as in Java); return their number."""
        return await self._change_perms(broker_name, lambda _: PERM_READ | PERM_WRITE, wiped=False)

    async def _change_perms(self, broker_name: str, new_perm: Callable[[int], int], *, wiped: bool) -> int:
        async with self._changing() as effects:
            changes = Changes()
            await run_in_steps(plan_perms(self.tables, changes, broker_name, new_perm))
            prepared = await self._prepared(changes)
            self.tables.forget_digests((broker_name,))
            was_wiped = broker_name in self.tables.wiped
            if wiped and broker_name in self.tables.broker_addr_table:
                self.tables.wiped[broker_name] = _NEVER
            elif not wiped:
                self.tables.wiped.pop(broker_name, None)
            self._apply(prepared, effects, broker_name)
            topics = len(self.tables.topics.of_broker.get(broker_name, ()))
            if was_wiped != (broker_name in self.tables.wiped):
                self.membership += 1
                effects.append(WriteWiped(broker_name, topics, is_wiped=wiped, reason="operator"))
            return topics

    def routes_may_differ(self, topics: Iterable[str] | None = None) -> None:
        """Renew routes that depend on data outside the tables (order configuration, options); None: all routes.

        Names in `topics` that have no route change nothing.
        """
        if topics is None:
            self._forget_responses()
            # An unchanged registration may have other results under other options.
            self._option_changes += 1
            self.tables.digests.clear()
            self._sink(RouteChanged(None, self.revisions.everything_changed()))
            return
        effects: list[Effect] = []
        self._publish(self.tables.topics.renew(topics), effects)
        for effect in effects:
            self._sink(effect)

    def _apply(self, prepared: Prepared, effects: list[Effect], broker_name: str | None = None) -> bool:
        self.tables.apply(prepared)
        return self._publish(prepared.topics.row_changes, effects, broker_name)

    def _publish(self, row_changes: RowChanges, effects: list[Effect], broker_name: str | None = None) -> bool:
        """Publish the new rows under a new revision, without a step per topic; return True if any route changed."""
        topics = row_changes.rows.keys()
        if topics:
            if self._on_publish is not None:
                self._on_publish(self.revisions.revision + 1, row_changes)
            revision = self.revisions.changed(row_changes)
            effects.append(RouteChanged(topics, revision, row_changes.batches, broker_name))
        return bool(topics)


def _squats(key: BrokerAddrInfo, live: BrokerLiveInfo, registration: Registration) -> bool:
    """True if a broker is in another broker's place, and still registered by the account that the guard found there."""
    return registration.displaces.get(key) == live.account and bool(live.account)


def _not_the_holder(takeover: TakeoverAttempted, what: str) -> NoPermissionError:
    holder = takeover.live
    return NoPermissionError(
        f"broker {holder.broker_name} with id {holder.broker_id} at {takeover.key.broker_addr} is alive, "
        f"last seen {takeover.age_seconds:.0f} s ago; this connection may not {what}"
    )
