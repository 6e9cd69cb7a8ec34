"""The link to one NameServer: registers the broker there, sends heartbeats, and reconnects after each failure."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from namesrv_broker_agent.link.connections import LinkConnections
from namesrv_broker_agent.link.registration import LinkRegistration
from namesrv_broker_agent.link.retries import Retries
from namesrv_broker_agent.link.state import LinkState, ServerState, Status
from namesrv_broker_agent.own_broker import OwnBroker, Role
from namesrv_broker_agent.protocols import BrokerProtocol, MasterInfo, RegistrationResponse
from namesrv_broker_agent.topics import TopicChange, TopicSnapshot
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import MASTER_ID, STALE_FIELD
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    QueryNotFoundError,
    RemotingError,
    ResponseError,
)
from namesrv_runtime.clock import Clock, timeout_on

logger: Final = logging.getLogger("namesrv_agent.connection")
_registration_logger: Final = logging.getLogger("namesrv_agent.registration")

# An interval between heartbeats is a random part of `heartbeat_seconds`, from this part to all of it: so four intervals
# never take longer than four times the setting, 120 s by default.
_SHORTEST_PERIOD: Final = 0.9
# the longest time of a client's close()
CLOSE_SECONDS: Final = 1.0


class ServerLink:
    """The agent's link to one NameServer, with a connection and heartbeats independent of those of other servers."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        address: str,
        broker: OwnBroker,
        *,
        clock: Clock,
        on_registered: Callable[[], None],
        # called with the link and its previous status
        on_status_changed: "Callable[[ServerLink, Status], None]",
        on_request: Callable[[RemotingCommand], None],
        protocols: ServerProtocols = PROCESS_PROTOCOLS,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._on_registered = on_registered
        self._random_unit = random_unit
        self._connections = LinkConnections(
            address, broker, clock=clock, protocols=protocols, on_request=on_request, on_lost=self._unsettle
        )
        settings = broker.settings
        self._state = LinkState(
            address, settings.heartbeat_seconds, clock, lambda before: on_status_changed(self, before)
        )
        self._retries = Retries(settings.max_backoff_seconds, settings.heartbeat_seconds, random_unit)
        self._registration = LinkRegistration()
        # the master that this server reported last, for a slave
        self.master: MasterInfo | None = None
        # set while the server has accepted all topics and settings of the broker
        self.settled = asyncio.Event()
        # set when the task has to act before the next heartbeat is due
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        status, pending = self.monotonic_state.status, len(self._registration.unsent)
        return f"<ServerLink [{self.address} | {status} | {pending} pending]>"

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._connections.address

    @property
    def monotonic_state(self) -> ServerState:
        """The state as of its last change, with monotonic times; `reported_state` has times by the wall clock."""
        return self._state.current

    def reported_state(self) -> ServerState:
        """The current state with times by the wall clock, for the owner of the agent; any thread may call this."""
        return self._state.reported(is_settled=self.settled.is_set())

    def socket_descriptors(self) -> list[int]:
        """File descriptors of the open connections: the current one, and the previous one while it is kept."""
        return self._connections.socket_descriptors()

    def has_one_of(self, descriptors: Collection[int]) -> bool:
        """True if the current connection has one of these descriptors."""
        return self._connections.has_one_of(descriptors)

    def topics_changed(self, change: TopicChange) -> None:
        """Have the task send a change to the server at once.

        If the server refuses the change, a full registration follows with the next heartbeat; after a lost connection,
        over the next one.
        """
        self._registration.unsent.add(change)
        self._unsettle()

    def register_again(self) -> None:
        """Have the task send a full registration at once, after a change of the broker's role or permission."""
        self._registration.unsent.needs_full = True
        self._unsettle()

    def ask_for_master(self) -> None:
        """Have the task register again at once, because the response names the current master."""
        self._registration.unsent.asks_master = True
        self._wake.set()

    def reconnect(self) -> None:
        """Have the task replace the current connection, open or being opened: a forked child holds a copy of it."""
        self._connections.give_up("was shared with the child of a fork")
        self._unsettle()

    def _unsettle(self) -> None:
        """Note that the server lacks topics or settings of the broker, and let the task act at once."""
        # The event is cleared here and not later by the task, so that callers of `BrokerAgent.registered` wait
        # for a new registration from this moment on.
        self.settled.clear()
        self._wake.set()

    def start(self) -> None:
        """Start the task that connects, registers and sends heartbeats, and begins again after each failure."""
        self._running = asyncio.create_task(self._run(), name=f"namesrv-agent {self.address}")
        self._running.add_done_callback(report_bug)

    async def _run(self) -> None:
        while True:
            try:
                await self._serve()
            except RemotingError as error:
                was_registered = self.monotonic_state.status == "registered"
                self._retries.failed(error, was_registered=was_registered)
                self.settled.clear()
                self._state.failed(str(error) or type(error).__name__, self._connections.protocol_name)
            except Exception as bug:
                self._becomes("unreachable", error=f"crashed: {bug!r}")
                raise
            await self._clock.sleep(self._retries.pause_seconds())

    async def end_task(self) -> None:
        """End the task; the connections, and with them the registration, stay."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def close(self, timeout_seconds: float, *, unregisters: bool) -> None:
        """Close all connections within `timeout_seconds`; first unregister, if wanted, over one that is open."""
        await self.end_task()
        open_client = self._connections.open_client() if unregisters else None
        with suppress(TimeoutError, RemotingError):
            async with timeout_on(self._clock, timeout_seconds):
                try:
                    if (protocol := self._connections.protocol) is not None and open_client is not None:
                        # Some time is left for closing, because a server that does not respond may not read either.
                        seconds = max(timeout_seconds - CLOSE_SECONDS, timeout_seconds / 2)
                        await protocol.unregister(open_client, seconds)
                finally:
                    self._becomes("stopped")
                    await self._connections.close()

    async def _serve(self) -> None:
        """Connect, register and send heartbeats until the connection ends."""
        connections, registration = self._connections, self._registration
        timeout_factor = self._retries.timeout_factor()
        client = await connections.replace(timeout_factor)
        self._state.connection_replaced()
        registration.begin_again()
        response_seconds = self._broker.settings.response_timeout_seconds
        protocol = await connections.choose_protocol(client, response_seconds * timeout_factor)
        await self._register(client, protocol)
        # The first heartbeat comes at a random moment of the interval, so that links do not send at the same time.
        due = self._clock.monotonic() + self._interval() * self._random_unit()
        while True:
            await self._wait_until(due)
            connections.check_usable()
            if registration.unsent.is_due:
                await self._register(client, protocol)
                # The server may have closed the connection after its response. A heartbeat would then open another
                # connection, over which the server has no registration.
                connections.check_usable()
            if self._clock.monotonic() >= due:
                # If the server has accepted nothing over this connection, it expects no heartbeat. The refused
                # registration is then sent again at the time of a heartbeat.
                if registration.version is not None:
                    await self._send_heartbeat(client, protocol, registration.version)
                due = self._clock.monotonic() + self._interval()

    async def _wait_until(self, due: float) -> None:
        """Wait until the next heartbeat is due, or until the task has to act earlier."""
        with suppress(TimeoutError):
            async with timeout_on(self._clock, max(0.0, due - self._clock.monotonic())):
                await self._wake.wait()
        self._wake.clear()

    async def _register(self, client: RemotingClient, protocol: BrokerProtocol) -> None:
        """Send a full registration, or only the changed topics if the server knows the others."""
        registration = self._registration
        change = registration.unsent.take()
        snapshot = self._broker.topics.snapshot()
        role = self._broker.role()
        try:
            response = await protocol.register(client, snapshot, change)
        except (ResponseError, LocalProtocolError) as error:
            registration.unsent.needs_full = True
            self._registration_failed(error)
            if isinstance(error, QueryNotFoundError) and change is not None:
                self._forgotten()
            elif (replacement := registration.replacement_for(snapshot, role)) is not None:
                await self._register_replacement(client, protocol, replacement, role)
            return
        sent = "all" if change is None else len(change.changed) + len(change.deleted)
        _registration_logger.debug("registered topics with %s: %s", self.address, sent)
        registration.accepted(change, snapshot, role)
        await self._registration_accepted(response)

    async def _register_replacement(
        self, client: RemotingClient, protocol: BrokerProtocol, replacement: TopicSnapshot, role: Role
    ) -> None:
        """Register topics that the server accepted earlier, because the server refuses newer ones."""
        # A server may close the connection after a refusal; the link then registers over a new connection of its own.
        self._connections.check_usable()
        try:
            response = await protocol.register(client, replacement, None)
        except (ResponseError, LocalProtocolError) as error:
            self._registration_failed(error)
            return
        self._registration.replacement_accepted(replacement, role)
        await self._registration_accepted(response)

    def _registration_failed(self, error: ResponseError | LocalProtocolError) -> None:
        """Note that the server has refused the topics, or that they do not fit into a frame.

        Raises ConnectionClosedError if another process has registered in this agent's name.
        """
        if isinstance(error, LocalProtocolError):
            problem = self._registration.problem = f"registration not sent: {error}"
            self._state.not_sent(problem)
        else:
            problem = self._registration.problem = f"registration refused: {error}"
            self._state.refused(problem)
            if STALE_FIELD in (error.ext_fields or {}):
                # The server prefers the registration of the other process, until this agent registers over a new
                # connection: that registration counts as newer.
                raise ConnectionClosedError(f"connection to {self.address} is taken over: {error}") from error
        if not self._registration.is_current:
            # The connection works, and the registration is sent again at the time of the next heartbeat.
            self._becomes("refused", error=problem)

    async def _registration_accepted(self, response: RegistrationResponse) -> None:
        self._state.registration_accepted(response.boot_id)
        self._becomes("registered", error=self._registration.problem)
        if self._registration.unsent.has_sent_all and self._connections.is_usable:
            self.settled.set()
        self.master = response.master
        self._on_registered()
        await self._connections.close_earlier()

    def _forgotten(self) -> None:
        """Have the task register fully at once: the server does not know the broker, or asks for all of its topics."""
        self._registration.forgotten()
        self._unsettle()

    async def _send_heartbeat(self, client: RemotingClient, protocol: BrokerProtocol, version: DataVersion) -> None:
        try:
            boot_id = await protocol.heartbeat(client, version, self._clock.monotonic())
        except QueryNotFoundError:
            self._forgotten()
            return
        except ResponseError as error:
            self._state.refused(f"heartbeat refused: {error}")
            return
        if boot_id is not None and boot_id != self.monotonic_state.boot_id:
            # The server has restarted behind a proxy, which kept this connection open.
            self.register_again()
        elif self._broker.broker_id != MASTER_ID:
            # The master may have changed, and only the response to a registration names it.
            self.ask_for_master()
        self._state.heartbeat_accepted(self._registration.problem)

    def _interval(self) -> float:
        share = _SHORTEST_PERIOD + (1 - _SHORTEST_PERIOD) * self._random_unit()
        return self._broker.settings.heartbeat_seconds * share

    def _becomes(self, status: Status, error: str | None = None) -> None:
        if status != "registered":
            self.settled.clear()
        self._state.becomes(status, self._connections.protocol_name, error)


def report_bug(task: asyncio.Task[None]) -> None:
    """Log the error of a task that should never end; for `add_done_callback`."""
    if not task.cancelled() and task.exception() is not None:
        logger.critical("agent task %s crashed", task.get_name(), exc_info=task.exception())
