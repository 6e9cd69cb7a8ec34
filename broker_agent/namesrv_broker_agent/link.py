"""The link to one NameServer: registers the broker there, sends heartbeats, and reconnects after each failure."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from namesrv_broker_agent.dialects import BrokerIdentity, Dialect, MasterInfo, NativeDialect, RocketmqDialect
from namesrv_broker_agent.topics import TopicChange
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import MASTER_ID, STALE_FIELD
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import ConnectionClosedError, QueryNotFoundError, RemotingError, ResponseError
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock, timeout_on

logger: Final = logging.getLogger("namesrv_agent.connection")
_registration_logger: Final = logging.getLogger("namesrv_agent.registration")
_heartbeat_logger: Final = logging.getLogger("namesrv_agent.heartbeat")

Status = Literal["connecting", "registered", "unreachable", "stopped"]
# The shortest interval between heartbeats, as a part of the setting: four intervals always fit into four times the
# setting.
_SHORTEST_PERIOD: Final = 0.9
_FIRST_BACKOFF_SECONDS: Final = 0.1
# An attempt that fails after this time, or whose connection the server accepts and closes, shows an overloaded server
# or network, not an absent server. Two thousand agents that retried every second with unchanged timeouts would keep
# such a server overloaded for ever.
_SLOW_SECONDS: Final = 1.0
_SLOW_BACKOFF: Final = Backoff(1.0, 15.0)
# The largest factor by which the timeouts of such attempts grow.
_MAX_TIMEOUT_FACTOR: Final = 4.0
# how long a client's close() may take
CLOSE_SECONDS: Final = 1.0
_LOST: Final = "was lost"
# A heartbeat that is this late is worth a warning; a single lost attempt delays it by less.
_LATE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of the link to one NameServer; times are wall-clock seconds since 1970."""

    address: str
    status: Status
    # since when the status is what it is
    since: float
    protocol: str | None = None
    boot_id: str | None = None
    last_answer: float | None = None
    last_error: str | None = None
    # registrations and heartbeats that the server has accepted
    registrations: int = 0
    heartbeats: int = 0
    # registrations and heartbeats that the server has refused
    refusals: int = 0
    # attempts to connect or register that failed, and connections that ended
    failures: int = 0
    # registrations over another connection than the first one
    reconnects: int = 0
    # time of the last accepted heartbeat or registration
    last_heartbeat: float | None = None
    # by how much the time since then, or since the start, exceeds heartbeat_seconds
    lateness_seconds: float = 0.0
    # True if the server has accepted all topics and settings of the broker
    is_settled: bool = False


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
        self.state = ServerState(address, "connecting", clock.wall())
        # monotonic time of the last accepted registration or heartbeat, or of the start
        self._accepted_at = clock.monotonic()
        # number of connections over which the server accepted a registration, and whether it includes the current one
        self._connections = 0
        self._is_counted = False
        # for a slave: the master that this server reported last
        self.master: MasterInfo | None = None
        self._identity = identity
        self._settings = identity.settings
        self._clock = clock
        self._on_registered = on_registered
        # called after each change of the status, with the previous status
        self._on_status = on_status
        self._on_request = on_request
        self._protocols = protocols
        self._random_unit = random_unit
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, self._settings.max_backoff_seconds)
        # consecutive attempts that failed on an overloaded server, and the current factor on the timeouts
        self._slow_failures = 0
        self._timeout_factor = 1.0
        self._running: asyncio.Task[None] | None = None
        self._client: RemotingClient | None = None
        # The previous connection, kept until the server has accepted a registration over the new one: if the agent
        # closed it earlier, a server that was only slow would evict the broker for a moment.
        self._former: RemotingClient | None = None
        self._dialect: Dialect | None = None
        # set when the task has to act before the next heartbeat is due
        self._wake = asyncio.Event()
        # why the current connection must not be used any more
        self._useless: str | None = None
        # True if the next registration has to be a full one
        self._needs_full = True
        # True if a slave has to register again to learn its master
        self._asks_master = False
        # topics changed since the last registration that was sent: name -> topic, None for deleted
        self._pending: dict[str, TopicConfig | None] = {}
        # set while the server has accepted all topics and settings of the broker
        self.settled = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ServerLink [{self.address} | {self.state.status} | {len(self._pending)} pending]>"

    def status(self) -> ServerState:
        """The current state; any thread may call this."""
        late = self._clock.monotonic() - self._accepted_at - self._settings.heartbeat_seconds
        return replace(self.state, lateness_seconds=max(0.0, late), is_settled=self.settled.is_set())

    def socket_descriptors(self) -> list[int]:
        """File descriptors of the open connections: the current one, and the previous one while it is kept."""
        found = (client.socket_descriptor for client in (self._client, self._former) if client is not None)
        return [descriptor for descriptor in found if descriptor is not None]

    def has_one_of(self, descriptors: Collection[int]) -> bool:
        """True if the current connection has one of these descriptors."""
        return self._client is not None and self._client.socket_descriptor in descriptors

    def topics_changed(self, change: TopicChange) -> None:
        """Send a change to the server at once; if the change is lost, the next heartbeat repairs that."""
        # A pending full registration includes the change; while the server is unreachable, changes must not pile up.
        if not self._needs_full:
            self._pending.update((topic.topic_name, topic) for topic in change.changed)
            self._pending.update(dict.fromkeys(change.deleted))
        self.settled.clear()
        self._wake.set()

    def register_again(self) -> None:
        """Send a full registration at once, after a change of the broker's role or permission."""
        self._needs_full = True
        self.settled.clear()
        self._wake.set()

    def ask_for_master(self) -> None:
        """Register again at once, because the response names the current master."""
        self._asks_master = True
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
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await self._serve()
            except RemotingError as error:
                was_registered = self.state.status == "registered"
                failures = 1 if was_registered else failures + 1
                took = self._clock.monotonic() - began
                is_overload = took >= _SLOW_SECONDS or isinstance(error, ConnectionClosedError)
                self._slow_failures = self._slow_failures + 1 if is_overload and not was_registered else 0
                self._fails(str(error) or type(error).__name__)
            except Exception as bug:
                self._becomes("unreachable", error=f"crashed: {bug!r}")
                raise
            backoff, times = (_SLOW_BACKOFF, self._slow_failures) if self._slow_failures else (self._backoff, failures)
            await self._clock.sleep(backoff.pause_seconds(times, self._random_unit()))

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

    def _new_client(self) -> RemotingClient:
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
            connect_timeout_seconds=self._settings.connect_timeout_seconds * self._timeout_factor,
            tcp_user_timeout_seconds=self._settings.answer_timeout_seconds,
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
        """From one connect to the end of that connection."""
        await self._close_former()
        # The factor is random, so that agents that failed together do not fail together again.
        longest = min(2.0**self._slow_failures, _MAX_TIMEOUT_FACTOR)
        self._timeout_factor = 1.0 if longest == 1.0 else 1.0 + (longest - 1.0) * self._random_unit()
        self._former, self._client = self._client, self._new_client()
        self._is_counted = False
        self._useless = None
        self._needs_full = True
        self._pending.clear()
        client = self._client
        self._dialect = dialect = await self._choose(client)
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
            if self._needs_full or self._pending or self._asks_master:
                await self._register(client, dialect)
            if self._clock.monotonic() >= due:
                # A refused registration takes the place of this heartbeat.
                if not self._needs_full:
                    await self._send_heartbeat(client, dialect)
                due = self._clock.monotonic() + self._interval()

    async def _choose(self, client: RemotingClient) -> Dialect:
        """The dialect that the settings name, or the best one that the server understands."""
        wanted = self._settings.protocol
        timeout_seconds = self._settings.answer_timeout_seconds * self._timeout_factor
        is_native = wanted == "native"
        if wanted == "auto":
            known = client.speaks_native()
            is_native = await client.server_info(timeout_seconds) is not None if known is None else known
            # An Apache server may close the connection on a native request; that is not a lost connection.
            self._useless = None if self._useless == _LOST else self._useless
        return (NativeDialect if is_native else RocketmqDialect)(self._identity, timeout_seconds)

    async def _register(self, client: RemotingClient, dialect: Dialect) -> None:
        """Send a full registration, or only the changed topics if the server knows the others."""
        change = None
        if not self._needs_full:
            changed = tuple(topic for topic in self._pending.values() if topic is not None)
            change = TopicChange(changed, tuple(name for name, topic in self._pending.items() if topic is None))
        self._needs_full = self._asks_master = False
        self._pending.clear()
        try:
            registered = await dialect.register(client, change)
        except ResponseError as error:
            self._needs_full = True
            self._refused(f"registration refused: {error}")
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
        boot_id = registered.boot_id or self.state.boot_id
        if not self._is_counted:
            self._is_counted = True
            self._connections += 1
        self._accepted(boot_id=boot_id, registrations=self.state.registrations + 1, reconnects=self._connections - 1)
        what = "all topics" if change is None else f"{len(change.changed) + len(change.deleted)} changed topics"
        _registration_logger.debug("registered %s with %s", what, self.address)
        self._becomes("registered")
        if not (self._needs_full or self._pending or self._useless):
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
            self._refused(f"heartbeat refused: {error}")
            return
        if boot_id is not None and boot_id != self.state.boot_id:
            # The server has restarted behind a connection that stayed open, through a proxy.
            self.register_again()
        elif self._identity.broker_id != MASTER_ID:
            # The master may have changed, and only the response to a registration names it.
            self.ask_for_master()
        self._accepted(heartbeats=self.state.heartbeats + 1)

    def _interval(self) -> float:
        return self._settings.heartbeat_seconds * (_SHORTEST_PERIOD + (1 - _SHORTEST_PERIOD) * self._random_unit())

    def _becomes(self, status: Status, error: str | None = None) -> None:
        if status != "registered":
            self.settled.clear()
        before = self.state.status
        since = self.state.since if before == status else self._clock.wall()
        protocol = None if self._dialect is None else self._dialect.name
        self.state = replace(self.state, status=status, since=since, protocol=protocol, last_error=error)
        if status != before:
            if status == "registered":
                logger.info("registered with %s", self.address)
            self._on_status(self, before)

    def _answered(self, *, error: str | None = None, **news: Any) -> None:
        self.state = replace(self.state, last_answer=self._clock.wall(), last_error=error, **news)

    def _accepted(self, **news: Any) -> None:
        """Note that the server has accepted a registration or a heartbeat."""
        now = self._clock.monotonic()
        if (late := now - self._accepted_at - self._settings.heartbeat_seconds) > _LATE_SECONDS:
            _heartbeat_logger.warning("heartbeat to %s was %.1f s late", self.address, late)
        self._accepted_at = now
        self._answered(last_heartbeat=self._clock.wall(), **news)

    def _refused(self, error: str) -> None:
        if error != self.state.last_error:
            _registration_logger.warning("%s: %s", self.address, error)
        self._answered(error=error, refusals=self.state.refusals + 1)

    def _fails(self, error: str) -> None:
        if error != self.state.last_error:
            logger.info("%s: %s", self.address, error)
        self.state = replace(self.state, failures=self.state.failures + 1)
        self._becomes("unreachable", error=error)


def report_bug(task: asyncio.Task[None]) -> None:
    """Log the error of a task that should never end; for `add_done_callback`."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("agent task %s crashed", task.get_name(), exc_info=task.exception())
