"""Entry point of every change to the route tables: the manager locks, plans, applies, then performs the effects.

The rule: *there is one lock; the only await under it is the yield between chunks, never I/O; effects are performed
after the lock is released.*

A change is planned in chunks under the write lock and then applied in one step, so that the tables are consistent
whenever the event loop runs other code. So readers that never await need no lock, and neither do steps that never await
(a heartbeat, an unchanged registration); a reader that yields while it copies a table takes the read lock. A planned
removal checks the live entry again before it is applied, because such a step may have come in between.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from namesrv.routeinfo.checks import check_routes, check_topics
from namesrv.routeinfo.eviction import Removal, remove, silent_brokers
from namesrv.routeinfo.registration import refresh, register
from namesrv.routeinfo.rules import (
    LimitExceededError,
    Rules,
    TableLimits,
    TableQuotas,
    TakeoverPolicy,
)
from namesrv.routeinfo.shares import Holdings
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS, OtherConnection
from namesrv.routeinfo.tables.effects import Effect, Fenced, OverQuota, ProcessStopped, RouteChanged, Scanned
from namesrv.routeinfo.tables.liveness import NEVER, LivenessClock
from namesrv.routeinfo.tables.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    RegisterResult,
    Registration,
    RouteOptions,
)
from namesrv.routeinfo.tables.revisions import RouteRevisions
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, RowChanges, TopicRow, queues_of
from namesrv.routeinfo.tables.write_removal import WriteRemoval, ended_removals
from namesrv.routeinfo.takeovers import attempted_takeover, is_in_use, takeover_refusal
from namesrv.routeinfo.topics import plan_delete_topic, plan_perms, plan_register_topic
from namesrv.routeinfo.write_section import WriteSection
from namesrv.rwlock import ReadWriteLock
from namesrv.yielding import run_in_steps
from namesrv_remoting.bodies.base import chunked
from namesrv_remoting.bodies.route import QueueData
from namesrv_remoting.codes import HEARTBEAT_SECONDS, PERM_READ, PERM_WRITE
from namesrv_remoting.requests import AccessClass

# Minimum seconds between two notes of heartbeats over a connection that is not the broker's own: the note only decides
# which of several connections takes over.
OTHER_CONNECTION_NOTE_SECONDS: Final = 1.0
# Brokers removed in one write section; other tasks run between two sections. A broker with a few topics takes 0.2 ms,
# and 1.3 ms while other processes use the same processor's caches.
REMOVALS_AT_ONCE: Final = 5


class RouteInfoManager:
    """The tables, their lock, and one method for each request or event that changes them."""

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
        self.rules = Rules(
            options,
            limits,
            quotas or TableQuotas(),
            policy or TakeoverPolicy(),
            is_connected=is_connected,
            network_of=network_of,
            now=liveness.now,
        )
        # Opens a write section with this state.
        self._section = partial(WriteSection, tables, self.rules, Holdings(tables), on_publish)
        # Drops all cached responses, also those of unchanged rows.
        self._forget_responses = forget_responses
        # Number of heartbeats of registered brokers.
        self.heartbeats = 0
        # Number of scans for silent brokers, and the number of the last one.
        self.scans = 0
        # Brokers whose unregister requests wait for the lock.
        self._leaving: Counter[BrokerAddrInfo] = Counter()
        self._liveness = liveness
        self._sink = sink
        # Receives the seconds by which a heartbeat was late.
        self._on_late_heartbeat = on_late_heartbeat
        # Receives every heartbeat: the broker, its live entry, and the silence before. Heartbeats are too many to be
        # effects.
        self._on_touch = on_touch

    def __repr__(self) -> str:
        return f"<RouteInfoManager [{self.tables!r} | revision {self.revisions.revision} | {self.lock!r}]>"

    @property
    def revisions(self) -> RouteRevisions:
        """The last change of each topic's route."""
        return self.tables.revisions

    @property
    def membership(self) -> int:
        """A number that grows whenever the contents of a snapshot change."""
        return self.tables.versions.membership

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
        self._sink(ProcessStopped(granted))
        return granted

    @contextlib.asynccontextmanager
    async def _changing(self, access_class: AccessClass = AccessClass.BROKER_CONTROL) -> AsyncIterator[WriteSection]:
        """Open a write section; a refusal by a limit is counted for this class of requests.

        The effects are performed after the section, also if it raises: they describe what was applied until then.
        """
        section = self._section()
        try:
            async with self.lock.write():
                self._end_write_removals(section)
                yield section
        except LimitExceededError as error:
            section.effects.append(OverQuota(access_class, error.reason, error.remark or "", is_refused=True))
            raise
        finally:
            self._perform(section)

    def _perform(self, section: WriteSection) -> None:
        for effect in section.effects:
            self._sink(effect)

    def _end_write_removals(self, section: WriteSection) -> None:
        """End the removals that are over; the next registrations of these groups bring the write permission back."""
        for name in ended_removals(self.tables.write_removed, self.now()):
            # Slaves that registered meanwhile may have topics without the permission that they send.
            self.tables.need_topics_of(name)
            section.set_write_removal(name, None, "expired")

    @contextlib.asynccontextmanager
    async def _removing(self, key: BrokerAddrInfo) -> AsyncIterator[WriteSection]:
        """Open a write section for an unregister request.

        While the request waits for the lock, unchanged registrations of the broker need the lock as well, and so are
        applied after the request.
        """
        with contextlib.ExitStack() as waiting:
            waiting.enter_context(self._noted_as_leaving(key))
            async with self._changing() as section:
                waiting.close()
                yield section

    @contextlib.contextmanager
    def _noted_as_leaving(self, key: BrokerAddrInfo) -> Iterator[None]:
        """Count an unregister request of a broker while the request waits for the lock."""
        self._leaving[key] += 1
        try:
            yield
        finally:
            self._leaving[key] -= 1
            if not self._leaving[key]:
                del self._leaving[key]

    async def register(self, registration: Registration) -> RegisterResult:
        """Apply a registration.

        Raises ResponseError if it is refused. Then it changes nothing: all checks come before the first change.
        """
        async with self._changing() as section:
            result = await run_in_steps(register(section, registration))
        if len(registration.body.topic_configs) > CHUNK_TOPICS:
            # Freeing the replaced rows takes time as well: other tasks run first.
            await asyncio.sleep(0)
        return result

    def register_unchanged(
        self, key: BrokerAddrInfo, digest: bytes, connection_id: int, registration_seq: int | None
    ) -> RegisterResult | None:
        """Refresh a live entry if `digest` is that of the last registration; None if the request must be applied."""
        if key in self._leaving:
            # An earlier unregister request of the broker still waits for the lock.
            return None
        section = self._section()
        result = refresh(section, key, digest, connection_id, registration_seq)
        self._perform(section)
        return result

    def touch(
        self, key: BrokerAddrInfo, connection_id: int, state: Mapping[str, Any] | None = None
    ) -> BrokerLiveInfo | None:
        """Refresh the live entry of a broker by a heartbeat, and return the entry; None if the broker is unknown."""
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
            connection_id = self._connection_after_heartbeat(key, live, connection_id, now)
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
        others = self.tables.connections.others_of(key)
        other = others.get(connection_id)
        if other is None and len(others) >= MAX_OTHER_CONNECTIONS:
            # Too many connections are noted; if the broker's own connection closes, a noted one takes over.
            return live.connection_id
        if other is not None and now - other.last_seen < OTHER_CONNECTION_NOTE_SECONDS:
            # The connection was noted a moment ago.
            return live.connection_id
        if not self.rules.is_connected(connection_id):
            # The connection closed after the request was received: no close event would follow.
            return live.connection_id
        if not self.rules.is_connected(live.connection_id):
            return connection_id
        self.tables.connections.note_other(key, connection_id, OtherConnection(registered=False, last_seen=now))
        return live.connection_id

    def is_registered(
        self,
        key: BrokerAddrInfo,
        broker_name: str,
        broker_id: int | None,
        agent_id: str | None,
        connection_id: int,
    ) -> bool:
        """True if a native heartbeat matches the registered broker; otherwise its sender has to register again.

        While the broker's own connection is open, a heartbeat over an older one does not match: another process may
        have registered in the agent's name.
        """
        live = self.tables.broker_live_table.get(key)
        return (
            live is not None
            and live.broker_name == broker_name
            and (broker_id is None or broker_id == live.broker_id)
            and (agent_id is None or agent_id == live.agent_id)
            and (connection_id >= live.connection_id or not self.rules.is_connected(live.connection_id))
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
        """Remove a broker at its own request; return True if it is removed.

        An unknown broker is no error. The request of another agent, or one from before the broker's last registration
        (over an older connection, or with a lower number), is stale and removes nothing. Raises NoPermissionError if
        takeovers are refused and the broker is in use on another open connection.
        """
        async with self._removing(key) as section:
            live = self.tables.broker_live_table.get(key)
            if live is None or live.broker_name != broker_name:
                return False
            # A broker leaves only by a request of the agent that registered the broker; without an agent, by a request
            # without an agent id.
            is_stale = (
                live.connection_id > connection_id
                or live.agent_id != agent_id
                or (agent_id is not None and (live.registration_seq or 0) > (registration_seq or 0))
            )
            if is_stale:
                section.effects.append(Fenced(key, live, "unregistered"))
                return False
            rules = self.rules
            if rules.policy.takeover != "allow" and is_in_use(self.tables, key, live, connection_id, rules):
                takeover = attempted_takeover(key, live, key, broker_name, connection_id, rules)
                section.effects.append(takeover)
                if takeover.is_refused:
                    raise takeover_refusal(takeover, "remove it")
            return await run_in_steps(remove(section, Removal(key, "unregistered", generation=live.generation)))

    def is_anyone_overdue(self, now: float) -> bool:
        """True if the expiry of a broker is over at `now`."""
        return any(live.expires_at() < now for live in self.tables.broker_live_table.values())

    async def evict_silent(self, *, as_of: float = NEVER, keeps_disconnected: bool = False) -> int:
        """Evict every broker whose expiry is over; return their number.

        With `as_of`, brokers whose expiry was not over at that time stay: the scan may have waited for the lock since.
        With `keeps_disconnected`, brokers without an open connection stay.
        """
        async with self._changing() as section:
            now = self.now()
            self.scans += 1
            section.effects.append(Scanned(self.scans, now, len(self.tables.broker_live_table)))
            due = await run_in_steps(silent_brokers(self.tables, min(now, as_of)))
        evicted = 0
        for chunk in chunked(due.items(), REMOVALS_AT_ONCE):
            await asyncio.sleep(0)
            async with self._changing() as section:
                evicted += await self._evict(chunk, section, keeps_disconnected=keeps_disconnected)
        return evicted

    async def _evict(
        self, due: Sequence[tuple[BrokerAddrInfo, float]], section: WriteSection, *, keeps_disconnected: bool
    ) -> int:
        """Evict these silent brokers, unless a heartbeat or removal came later; return the number of evictions."""
        evicted = 0
        for key, last_update in due:
            live = self.tables.broker_live_table.get(key)
            if live is not None and (not keeps_disconnected or self.rules.is_connected(live.connection_id)):
                # Only a later heartbeat makes the removal stale: a change of the connection alone does not show that
                # the broker lives.
                removal = Removal(key, "silent", last_update=last_update, scan=self.scans)
                evicted += await run_in_steps(remove(section, removal))
        return evicted

    def leave_connection(self, connection_id: int) -> None:
        """Forget a closed connection, and move its brokers to other open connections over which they were seen.

        A broker without such a connection stays on the closed one, for `connection_closed` or the scan to evict.
        """
        tables, now = self.tables, self.now()
        tables.connections.forget(connection_id)
        for key in list(tables.connections.brokers_on.get(connection_id, ())):
            live = tables.broker_live_table[key]
            # A connection without a heartbeat for the whole expiry only looks open.
            others = [
                (other, number)
                for number, other in tables.connections.others.get(key, {}).items()
                if self.rules.is_connected(number) and other.last_seen + live.expiry_seconds >= now
            ]
            if others:
                tables.set_live(key, live.seen(live.last_update, max(others)[1], None))

    async def connection_closed(self, connection_id: int) -> None:
        """Evict all brokers of a closed connection for which no other open connection is noted."""
        self.leave_connection(connection_id)
        table, brokers_on = self.tables.broker_live_table, self.tables.connections.brokers_on
        # No further broker moves to a closed connection.
        leaving = _by_expiry((key, table[key]) for key in brokers_on.get(connection_id, ()))
        for chunk in chunked(leaving, REMOVALS_AT_ONCE):
            async with self._changing() as section:
                # A broker may have moved to another connection while an earlier one was removed.
                for key in [key for key, _ in chunk if key in brokers_on.get(connection_id, ())]:
                    removal = Removal(key, "disconnected", connection_id=connection_id)
                    await run_in_steps(remove(section, removal))
            if connection_id in brokers_on:
                await asyncio.sleep(0)

    async def revoke(self, brokers: Iterable[tuple[BrokerAddrInfo, BrokerLiveInfo]]) -> None:
        """Remove brokers that may no longer be registered, unless they have registered since."""
        for chunk in chunked(_by_expiry(brokers), REMOVALS_AT_ONCE):
            async with self._changing() as section:
                for key, live in chunk:
                    if key in self.tables.broker_live_table:
                        removal = Removal(key, "disconnected", generation=live.generation)
                        await run_in_steps(remove(section, removal))
            await asyncio.sleep(0)

    def stop_waiting_for_brokers(self, *, is_any_missing: bool) -> None:
        """End the wait for the brokers of the previous boot."""
        # A new snapshot is due: the file still names missing brokers, and the next start would wait for them again.
        self.tables.versions.membership += is_any_missing

    async def delete_topic(self, topic: str, cluster_name: str | None) -> None:
        """Remove a topic, or only its queues on one cluster's brokers; unknown names change nothing."""
        async with self._changing() as section:
            row = self.tables.topic_queue_table.get(topic)
            changes = await run_in_steps(plan_delete_topic(self.tables, topic, cluster_name))
            await self._change_topic(section, changes, row)

    async def register_topic(self, topic: str, queue_datas: Sequence[QueueData]) -> None:
        """Set a topic's queues on known brokers. Raises LimitExceededError."""
        async with self._changing(AccessClass.ADMIN_WRITE) as section:
            changes = plan_register_topic(self.tables, topic, queue_datas)
            row = changes.rows.get(topic)
            known, limits = self.tables.topics.of_broker, self.rules.limits
            added = sum(topic not in known.get(queues.broker_name, {}) for queues in queues_of(row))
            if added:
                check_routes(self.tables, limits, added)
            for queues in queues_of(row):
                await run_in_steps(check_topics(self.tables, limits, queues.broker_name, [topic], 1))
            await self._change_topic(section, changes, row)

    async def _change_topic(self, section: WriteSection, changes: Changes, row: TopicRow | None) -> None:
        """Apply the change of a topic; the next registration of each broker in `row` is applied, even if unchanged."""
        prepared = await run_in_steps(self.tables.prepare(changes))
        self.tables.forget_digests(queues.broker_name for queues in queues_of(row))
        section.apply(prepared)

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker group, also for topics that the group registers later.

        `write_removal.py` lists the ways in which the removal ends.

        Returns the number of the group's topics, including topics that were not writable before.
        """
        return await self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE, is_removed=True)

    async def add_write_perm(self, broker_name: str) -> int:
        """Set a broker group's topics to read and write permission (no other bit, as in Java); return their number.

        The next registrations of the group's brokers bring their own permissions back.
        """
        return await self._change_perms(broker_name, lambda _: PERM_READ | PERM_WRITE, is_removed=False)

    async def _change_perms(self, broker_name: str, new_perm: Callable[[int], int], *, is_removed: bool) -> int:
        async with self._changing() as section:
            changes = Changes()
            await run_in_steps(plan_perms(self.tables, changes, broker_name, new_perm))
            prepared = await run_in_steps(self.tables.prepare(changes))
            if is_removed:
                self.tables.forget_digests((broker_name,))
            else:
                self.tables.need_topics_of(broker_name)
            section.apply(prepared, broker_name)
            if not is_removed or broker_name in self.tables.broker_addr_table:
                section.set_write_removal(broker_name, WriteRemoval() if is_removed else None, "operator")
            return len(self.tables.topics.of_broker.get(broker_name, ()))

    def routes_may_differ(self, topics: Iterable[str] | None = None) -> None:
        """Renew routes that depend on data outside the tables (order configuration, options); None: all routes.

        Names in `topics` that have no route change nothing.
        """
        if topics is None:
            self._forget_responses()
            # An unchanged registration may have other results under other options.
            self.tables.digests.options_changed()
            self._sink(RouteChanged(None, self.revisions.everything_changed()))
            return
        section = self._section()
        section.publish(self.tables.topics.renew(topics))
        self._perform(section)


def _by_expiry(brokers: Iterable[tuple[BrokerAddrInfo, BrokerLiveInfo]]) -> list[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
    """Order brokers that leave together, as `silent_brokers` does, so that logs and simulations repeat."""
    return sorted(brokers, key=lambda broker: (broker[1].expires_at(), broker[0]))
