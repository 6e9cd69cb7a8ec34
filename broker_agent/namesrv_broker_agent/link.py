"""The link to one NameServer: registers the broker there, sends heartbeats, and reconnects after each failure."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

from namesrv_broker_agent.dialects import BrokerIdentity, Dialect, MasterInfo, NativeDialect, RocketmqDialect
from namesrv_broker_agent.link_state import LinkState, ServerState, Status
from namesrv_broker_agent.retries import Retries
from namesrv_broker_agent.topics import TopicChange
from namesrv_broker_agent.unsent import UnsentChanges
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.codes import MASTER_ID, STALE_FIELD
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError, QueryNotFoundError, RemotingError, ResponseError
from namesrv_runtime.clock import Clock, timeout_on

logger: Final = logging.getLogger("namesrv_agent.connection")
_registration_logger: Final = logging.getLogger("namesrv_agent.registration")

# The shortest interval between heartbeats, as a part of the setting: four intervals always fit into four times the
# setting.
_SHORTEST_PERIOD: Final = 0.9
# the longest time of a client's close()
CLOSE_SECONDS: Final = 1.0
_LOST: Final = "was lost"


class ServerLink:
    """The agent's link to one NameServer, with a connection and heartbeats independent of those of other servers."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        identity: BrokerIdentity,
        *,
        clock: Clock,
        on_registered: Callable[[], None],
        on_status: "Callable[[ServerLink, Status], None]",
        on_request: Callable[[RemotingCommand], None],
        protocols: ServerProtocols = PROCESS_PROTOCOLS,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self.address = address
        self._identity = identity
        self._settings = identity.settings
        self._clock = clock
        self._on_registered = on_registered
        self._on_request = on_request
        self._protocols = protocols
        self._random_unit = random_unit
        self._state = LinkState(
            address, self._settings.heartbeat_seconds, clock, lambda before: on_status(self, before)
        )
        self._retries = Retries(self._settings.max_backoff_seconds, random_unit)
        self._unsent = UnsentChanges()
        # the master that this server reported last, for a slave
        self.master: MasterInfo | None = None
        # set while the server has accepted all topics and settings of the broker
        self.settled = asyncio.Event()
        # set when the task has to act before the next heartbeat is due
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._client: RemotingClient | None = None
        # The previous connection, kept until the server has accepted a registration over the new one: if the agent
        # closed it earlier, a server that was only slow would evict the broker for a moment.
        self._former: RemotingClient | None = None
        # the reason to stop using the current connection
        self._useless: str | None = None
        self._dialect: Dialect | None = None

    def __repr__(self) -> str:
        return f"<ServerLink [{self.address} | {self.state.status} | {len(self._unsent)} pending]>"

    @property
    def state(self) -> ServerState:
        """The state at its last change."""
        return self._state.current

    def status(self) -> ServerState:
        """The current state; any thread may call this."""
        lateness_seconds = max(0.0, self._state.lateness_seconds)
        return replace(self.state, lateness_seconds=lateness_seconds, is_settled=self.settled.is_set())

    def socket_descriptors(self) -> list[int]:
        """File descriptors of the open connections: the current one, and the previous one while it is kept."""
        descriptors = (client.socket_descriptor for client in (self._client, self._former) if client is not None)
        return [descriptor for descriptor in descriptors if descriptor is not None]

    def has_one_of(self, descriptors: Collection[int]) -> bool:
        """True if the current connection has one of these descriptors."""
        return self._client is not None and self._client.socket_descriptor in descriptors

    def topics_changed(self, change: TopicChange) -> None:
        """Send a change to the server at once; if the change is lost, the next heartbeat repairs that."""
        self._unsent.add(change)
        self.settled.clear()
        self._wake.set()

    def register_again(self) -> None:
        """Send a full registration at once, after a change of the broker's role or permission."""
        self._unsent.needs_full = True
        self.settled.clear()
        self._wake.set()

    def ask_for_master(self) -> None:
        """Register again at once, because the response names the current master."""
        self._unsent.asks_master = True
        self._wake.set()

    def reconnect(self) -> None:
        """Replace the current connection, open or being opened, because a forked child process holds a copy of it."""
        self._useless = "was shared with the child of a fork"
        self.settled.clear()
        self._wake.set()

    def start(self) -> None:
        """Start the task that connects, registers and sends heartbeats, and begins again after each failure."""
        self._running = asyncio.create_task(self._run(), name=f"namesrv-agent {self.address}")
        self._running.add_done_callback(report_bug)

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self._serve()
            except RemotingError as error:
                was_registered = self.state.status == "registered"
                self._retries.failed(error, self._clock.monotonic() - began, was_registered=was_registered)
                self.settled.clear()
                self._state.failed(str(error) or type(error).__name__, self._protocol())
            except Exception as bug:
                self._becomes("unreachable", error=f"crashed: {bug!r}")
                raise
            await self._clock.sleep(self._retries.pause_seconds())

    async def leave(self, timeout_seconds: float) -> None:
        """Unregister, if there is an open connection, and close all connections, within `timeout_seconds`."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        clients = [client for client in (self._client, self._former) if client is not None]
        connected = [client for client in clients if client.connected]
        with suppress(TimeoutError, RemotingError):
            async with timeout_on(self._clock, timeout_seconds):
                try:
                    if self._dialect is not None and connected:
                        # Some time is left for closing, because a server that does not respond may not read either.
                        seconds = max(timeout_seconds - CLOSE_SECONDS, timeout_seconds / 2)
                        await self._dialect.unregister(connected[0], seconds)
                finally:
                    self._becomes("stopped")
                    await asyncio.gather(*(client.close() for client in clients))

    def _new_client(self, timeout_factor: float) -> RemotingClient:
        """A new client, not connected yet."""

        def lost(error: ConnectionClosedError) -> None:  # noqa: ARG001 - the next call raises an error of its own
            if client is self._client:
                self._useless = self._useless or _LOST
                # Cleared here and not later in the task, so that callers of `registered` wait for a new registration.
                self.settled.clear()
                self._wake.set()

        client = RemotingClient(
            self.address,
            clock=self._clock,
            tls=self._settings.client_tls,
            connect_timeout_seconds=self._settings.connect_timeout_seconds * timeout_factor,
            tcp_user_timeout_seconds=self._settings.response_timeout_seconds,
            fail_fast=False,
            on_request=self._on_request,
            on_connection_lost=lost,
            protocols=self._protocols,
            credentials=self._settings.credentials(self._clock.wall),
        )
        return client

    async def _close_former(self) -> None:
        if self._former is not None:
            if (descriptor := self._former.socket_descriptor) is not None:
                # A forked child may hold a copy of the socket. Without the shutdown, the server would count the
                # connection as the broker's until that child ends.
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
                    shared.shutdown(socket.SHUT_RDWR)
            await self._former.close()
            self._former = None

    async def _serve(self) -> None:
        """Connect, register and send heartbeats until the connection ends."""
        await self._close_former()
        timeout_factor = self._retries.timeout_factor()
        client = self._new_client(timeout_factor)
        self._former, self._client = self._client, client
        self._useless = None
        self._state.connection_replaced()
        self._unsent.begin_again()
        self._dialect = dialect = await self._choose(client, self._settings.response_timeout_seconds * timeout_factor)
        await self._register(client, dialect)
        await self._close_former()
        # The first heartbeat comes at a random moment of the interval, so that links do not send at the same time.
        due = self._clock.monotonic() + self._interval() * self._random_unit()
        while True:
            with suppress(TimeoutError):
                async with timeout_on(self._clock, max(0.0, due - self._clock.monotonic())):
                    await self._wake.wait()
            self._wake.clear()
            if self._useless is not None:
                raise ConnectionClosedError(f"connection to {self.address} {self._useless}")
            if self._unsent.is_due:
                await self._register(client, dialect)
            if self._clock.monotonic() >= due:
                # A refused registration takes the place of this heartbeat.
                if not self._unsent.needs_full:
                    await self._send_heartbeat(client, dialect)
                due = self._clock.monotonic() + self._interval()

    async def _choose(self, client: RemotingClient, timeout_seconds: float) -> Dialect:
        """The dialect that the settings name, or the best one that the server understands."""
        wanted = self._settings.protocol
        is_native = wanted == "native"
        if wanted == "auto":
            known = client.speaks_native()
            is_native = await client.server_info(timeout_seconds) is not None if known is None else known
            # An Apache server may close the connection on a native request; that is not a lost connection.
            self._useless = None if self._useless == _LOST else self._useless
        return (NativeDialect if is_native else RocketmqDialect)(self._identity, timeout_seconds)

    async def _register(self, client: RemotingClient, dialect: Dialect) -> None:
        """Send a full registration, or only the changed topics if the server knows the others."""
        change = self._unsent.take()
        try:
            registered = await dialect.register(client, change)
        except ResponseError as error:
            self._unsent.needs_full = True
            self._state.refused(f"registration refused: {error}")
            if isinstance(error, QueryNotFoundError) and change is not None:
                # The server does not know the broker: register fully.
                self._wake.set()
            elif STALE_FIELD in (error.ext_fields or {}):
                # Another process registered in this agent's name. A registration over a new connection counts as newer.
                self._useless = f"is taken over: {error}"
                self._wake.set()
            elif self.state.status == "unreachable":
                # The connection works, and the next heartbeat tries again.
                self._becomes("connecting", error=self.state.last_error)
            return
        self._state.registration_accepted(registered.boot_id)
        what = "all" if change is None else len(change.changed) + len(change.deleted)
        _registration_logger.debug("registered topics with %s: %s", self.address, what)
        self._becomes("registered")
        if self._unsent.is_complete and self._useless is None:
            self.settled.set()
        self.master = registered.master
        self._on_registered()

    async def _send_heartbeat(self, client: RemotingClient, dialect: Dialect) -> None:
        try:
            boot_id = await dialect.heartbeat(client, self._clock.monotonic())
        except QueryNotFoundError:
            self.register_again()
            return
        except ResponseError as error:
            self._state.refused(f"heartbeat refused: {error}")
            return
        if boot_id is not None and boot_id != self.state.boot_id:
            # The server has restarted behind a connection that stayed open, through a proxy.
            self.register_again()
        elif self._identity.broker_id != MASTER_ID:
            # The master may have changed, and only the response to a registration names it.
            self.ask_for_master()
        self._state.heartbeat_accepted()

    def _interval(self) -> float:
        return self._settings.heartbeat_seconds * (_SHORTEST_PERIOD + (1 - _SHORTEST_PERIOD) * self._random_unit())

    def _becomes(self, status: Status, error: str | None = None) -> None:
        if status != "registered":
            self.settled.clear()
        self._state.becomes(status, self._protocol(), error)

    def _protocol(self) -> str | None:
        return None if self._dialect is None else self._dialect.name


def report_bug(task: asyncio.Task[None]) -> None:
    """Log the error of a task that should never end; for `add_done_callback`."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("agent task %s crashed", task.get_name(), exc_info=task.exception())
