"""A `RemotingServer` on a free port with a fake clock."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import pytest

from namesrv.net.dispatcher import Dispatcher, Handler, Reply
from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.fairness.fair_scheduler import FairScheduler
from namesrv.net.listeners import Listeners
from namesrv.net.protocol import ServerConnection
from namesrv.net.remoting_server import ConnectionObserver, RemotingServer
from namesrv.net.request import Connection, ReceiveRules, Request
from namesrv.net.slots import ConnectionSlots
from namesrv.net.tls.detector import ServerTls
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, until
from tests.support.raw_peer import RawPeer

# request codes of these servers
ECHO = 1
FAIL = 2
# the daemon's limits without an idle timeout, reserved slots and a limit for each address, which only some tests set
LIMITS: Final = replace(
    Limits.of(Settings()).server, reserved_connections=0, max_connections_per_ip=0, idle_seconds=0.0
)
# for tests about frames above the default frame limit
LARGE: Final = {ECHO: 16 * 1024 * 1024}


class RecordingObserver:
    """An observer that records its calls in order."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        # (connection id, reason)
        self.closed: list[tuple[int, str]] = []
        # (connection id, reason, message)
        self.refused: list[tuple[int, str, str]] = []

    def connection_opened(self, connection: ServerConnection) -> None:
        self.opened.append(connection.id)

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        self.closed.append((connection.id, reason))

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        self.refused.append((connection.id, error.reason, str(error)))

    def may_be_idle(self, connection: ServerConnection) -> bool:
        return connection.peer.role == "broker"

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.refused]


class Serving:
    """A listening server, its clock and its peers."""

    def __init__(
        self, server: RemotingServer, listeners: Listeners, clock: FakeClock, observer: RecordingObserver
    ) -> None:
        self.server = server
        self.listeners = listeners
        self.clock = clock
        self.observer = observer
        self.addresses: list[tuple[str, int]] = []
        self.peers: list[RawPeer] = []

    async def connect(self, *, receive_buffer: int = 0) -> RawPeer:
        """Connect a peer; return when the server has accepted or refused it."""
        before = self._met()
        peer = await RawPeer.connect(self.addresses[0], receive_buffer=receive_buffer)
        self.peers.append(peer)
        await until(lambda: self._met() > before)
        return peer

    def _met(self) -> int:
        refused = [why for why in self.observer.reasons if why in ("connections", "connections_per_ip", "memory")]
        return len(self.observer.opened) + len(refused)

    def connection_of(self, peer: RawPeer) -> ServerConnection:
        [found] = [one for one in self.server.connections.values() if one.peer.address == peer.address]
        return found

    def connections_in_memory(self) -> list[ServerConnection]:
        """All connections of this server; objects of other tests' servers may wait for a later garbage collection."""
        ours = [thing for thing in gc.get_objects() if isinstance(thing, ServerConnection)]
        return [connection for connection in ours if connection._owner is self.server]


# the response to a frame on the fast path, empty when none is due; None leaves the frame to the dispatcher
Recognise = Callable[[Connection, bytes], bytes | None]


def recognise_nothing(connection: Connection, frame: bytes) -> None:
    """Leave every frame to the dispatcher."""


class FastPathOf:
    """A fast path that passes whole frames to a function."""

    def __init__(self, recognise: Recognise) -> None:
        self._recognise = recognise

    def answer(self, connection: Connection, frame: bytes) -> bytes | None:
        return self._recognise(connection, frame) if len(frame) == 4 + int.from_bytes(frame[:4]) else None

    def learn(self, frame: bytes, command: RemotingCommand) -> None:
        """Learn nothing."""


def server_of(
    dispatcher: Dispatcher,
    observer: ConnectionObserver,
    clock: FakeClock,
    tasks: asyncio.TaskGroup,
    *,
    fast_path: Recognise = recognise_nothing,
    budget: MemoryBudget | None = None,
    scheduler: FairScheduler | None = None,
    **limits: Any,
) -> RemotingServer:
    """A server with the limits of LIMITS and overrides."""
    return RemotingServer(
        dispatcher,
        observer,
        clock=clock,
        tasks=tasks,
        scheduler=FairScheduler() if scheduler is None else scheduler,
        slots=ConnectionSlots(replace(LIMITS, **limits), budget or MemoryBudget(512 * 1024 * 1024), {}),
        fast_path=FastPathOf(fast_path),
    )


class _Done(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """The test is over."""


@asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler] | None = None,
    *,
    concurrent: frozenset[int] = frozenset(),
    large_frames: Mapping[int, int] = MappingProxyType({}),
    before_registration: frozenset[int] = frozenset(),
    hosts: Sequence[str] = ("127.0.0.1",),
    tls: ServerTls | None = None,
    **options: Any,
) -> AsyncIterator[Serving]:
    """Serve ECHO, which returns the request's body, FAIL, which has a bug, and the given handlers.

    The options are those of `server_of`, limits among them.
    """
    clock, observer = FakeClock(), RecordingObserver()
    table: dict[int, Handler] = {ECHO: echo, FAIL: fail, **(handlers or {})}
    failed: BaseException | None = None
    async with asyncio.timeout(GUARD_SECONDS):
        try:
            async with asyncio.TaskGroup() as tasks:
                dispatcher = Dispatcher(
                    table,
                    receive_rules={
                        code: ReceiveRules(
                            is_concurrent=code in concurrent,
                            largest_frame_bytes=large_frames.get(code, 0),
                            before_registration=code in before_registration,
                        )
                        for code in {*concurrent, *large_frames, *before_registration}
                    },
                    native_ext={"boot_id": "b00t"},
                )
                server = server_of(dispatcher, observer, clock, tasks, **options)
                listeners = Listeners(server, tls or ServerTls())
                served = Serving(server, listeners, clock, observer)
                try:
                    served.addresses = await listeners.open(hosts, 0)
                    tasks.create_task(server.run())
                    yield served
                except BaseException as error:  # noqa: BLE001 - raised again when the server is gone
                    failed = error
                listeners.close()
                server.abort_all()
                for peer in served.peers:
                    peer.writer.transport.abort()
                await until(lambda: not server.connections)
                raise _Done
        except* _Done:
            pass
        if failed is not None:
            raise failed


async def echo(request: Request) -> Reply:
    """A handler that returns the request's body and ext fields."""
    return Reply(request.command.body, request.command.ext_fields)


async def fail(request: Request) -> Reply:
    """A handler with a bug."""
    raise ZeroDivisionError(f"request {request.command.opaque}")


class Gate:
    """A handler that records its requests and responds only when it is opened."""

    def __init__(self) -> None:
        self.came: list[int | None] = []
        self.done: list[int | None] = []
        self.cancelled: list[int | None] = []
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def __call__(self, request: Request) -> Reply:
        opaque = request.command.opaque
        self.came.append(opaque)
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.cancelled.append(opaque)
            raise
        self.done.append(opaque)
        return Reply()


# -- ways in which a peer's bytes arrive; tests/namesrv/net/test_receiver.py has any cuts of a stream ----------------

Feed = Callable[[RawPeer, bytes], Awaitable[None]]


async def whole(peer: RawPeer, data: bytes) -> None:
    """Send in one write."""
    peer.send(data)


async def byte_by_byte(peer: RawPeer, data: bytes) -> None:
    """Send one byte per read."""
    await peer.send_slowly(data)


every_feeding = pytest.mark.parametrize("feed", [whole, byte_by_byte])
