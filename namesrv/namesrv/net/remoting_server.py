"""Remoting server: owns accepted connections, gives them slots, and closes them in order at shutdown."""

import asyncio
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from namesrv.net.dispatcher import Dispatcher
from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.fairness.fair_scheduler import FairScheduler
from namesrv.net.fairness.read_shares import ReadShares
from namesrv.net.limits import ServerLimits
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import FastPath
from namesrv.net.slots import ConnectionSlots
from namesrv.periodic import Periodic
from namesrv.yielding import in_chunks
from namesrv_remoting.aio.socket_options import set_tcp_options
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_runtime.clock import Clock

_SWEEP_SECONDS: Final = 1.0
# Connections whose deadlines are checked in one iteration of the loop. A check takes 2 microseconds, and 30 if a large
# frame has waited for memory and is accepted.
_CHECKED_AT_ONCE: Final = 100
_SHORTEST_PAUSE_SECONDS: Final = 0.01


class ConnectionObserver(Protocol):
    """Observer of connections; its methods are called in the event loop and must not block."""

    def connection_opened(self, connection: ServerConnection) -> None:
        """A connection has got a slot."""

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """A connection with a slot was closed."""

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """A peer was refused, and its connection is being closed; or only a frame was refused, for lack of memory."""

    def may_be_idle(self, connection: ServerConnection) -> bool:
        """True for connections over which a broker is registered: the idle timeout does not apply to them."""
        ...


@dataclass(eq=False, repr=False)
class RemotingServer:
    """Owns all accepted connections; their tasks run in `tasks`, and a bug in a task ends that TaskGroup."""

    dispatcher: Dispatcher
    observer: ConnectionObserver
    _: KW_ONLY
    clock: Clock
    # the owner of the tasks that run handlers
    tasks: asyncio.TaskGroup
    scheduler: FairScheduler = field(default_factory=FairScheduler)
    # fair scheduling of reads; the daemon's HTTPS port has the same shares
    read_shares: ReadShares = field(default_factory=ReadShares)
    fast_path: FastPath
    # all connections with a slot, their limits and the memory budget
    slots: ConnectionSlots
    # sums over all connections since the start, closed ones included
    bytes_received: int = field(default=0, init=False)
    bytes_sent: int = field(default=0, init=False)

    @property
    def limits(self) -> ServerLimits:
        """The limits of connections and peers."""
        return self.slots.limits

    @property
    def budget(self) -> MemoryBudget:
        """The memory that peers may use."""
        return self.slots.budget

    @property
    def connections(self) -> dict[int, ServerConnection]:
        """Connection id -> connection; all connections with a slot."""
        return self.slots.connections

    async def run(self) -> None:
        """Check the deadlines of all connections every second, until cancelled."""
        await Periodic(self.clock, _SWEEP_SECONDS, self._sweep).run()

    async def close_connections(self, connections: Iterable[ServerConnection], over_seconds: float) -> None:
        """Close connections one by one, evenly over a time, so that not all peers reconnect elsewhere at once."""
        leaving = [connection for connection in connections if connection.is_open]
        started = self.clock.monotonic()
        for number, connection in enumerate(leaving):
            wait = started + over_seconds * number / len(leaving) - self.clock.monotonic()
            # Waits below 10 ms add up instead of being slept, since a sleep is not exact enough for them.
            if wait > _SHORTEST_PAUSE_SECONDS:
                await self.clock.sleep(wait)
            connection.close()

    async def drain(self, seconds: float) -> bool:
        """Wait until no request is in flight and all responses are sent; False if the time was too short."""
        deadline = self.clock.monotonic() + seconds
        while any(connection.in_flight or connection.unsent_bytes for connection in self.connections.values()):
            if self.clock.monotonic() >= deadline:
                return False
            await self.clock.sleep(0.02)
        return True

    def abort_all(self) -> None:
        """Close all open connections at once."""
        for connection in list(self.connections.values()):
            connection.abort()

    # -- calls of connections -----------------------------------------------------------------------------------------

    def assign_slot(self, connection: ServerConnection) -> bool:
        """Give a connection a slot, or refuse it; True if the slot is reserved, so its peer must register."""
        try:
            is_slot_reserved = self.slots.occupy(connection, self._make_room)
        except RemoteProtocolError as refusal:
            self.note_refusal(connection, refusal)
            connection.abort()
            return False
        if (accepted := connection.socket) is not None:
            set_tcp_options(accepted, user_timeout_seconds=self.limits.tcp_user_timeout_seconds)
        self.observer.connection_opened(connection)
        return is_slot_reserved

    def _make_room(self, connection: ServerConnection) -> None:
        """Close a connection without a broker: a new connection, which may be a broker's, needs the slot."""
        self.note_refusal(connection, RemoteProtocolError("connection slot needed for a broker", reason="connections"))
        connection.abort()
        # `connection_lost` comes in a later iteration, but the next connection needs the slot now.
        self.connection_closed(connection, "closed")

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """Remove a connection, and notify the observer if the connection had a slot."""
        if not self.slots.leave(connection):
            return
        self.observer.connection_closed(connection, reason)

    def note_refusal(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """Notify the observer of a refusal."""
        self.observer.connection_refused(connection, error)

    def may_be_idle(self, connection: ServerConnection) -> bool:
        """True for connections over which a broker is registered, as the observer knows."""
        return self.observer.may_be_idle(connection)

    async def _sweep(self, lateness: float) -> None:
        # After a late iteration, input that arrived in time may be unread, so the lateness is subtracted.
        now = self.clock.monotonic() - lateness
        async for some in in_chunks(list(self.connections.values()), _CHECKED_AT_ONCE):
            for connection in some:
                connection.check_deadlines(now)
