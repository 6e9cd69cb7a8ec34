"""Runs a `RemotingServer` on a free port and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from namesrv_remoting.aio.budget import MemoryBudget
from namesrv_remoting.aio.connection import FastLane, ServerConnection
from namesrv_remoting.aio.dispatch import Dispatcher, Handler, Reply, Request
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_remoting.aio.server import RemotingServer, no_fast_lane
from namesrv_remoting.errors import RemoteProtocolError
from tests.support.fake_clock import FakeClock
from tests.support.guard import GUARD_SECONDS
from tests.support.raw_peer import RawPeer, until

# request codes that these servers know
ECHO = 1
FAIL = 2
# for tests about frames larger than those that anybody may send
LARGE = ServerLimits(large_frames={ECHO: 16 * 1024 * 1024})


class Heard:
    """A listener that notes what it is told, in order."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        # (connection id, reason)
        self.closed: list[tuple[int, str]] = []
        # (connection id, reason, message)
        self.refused: list[tuple[int, str, str]] = []

    def connection_opened(self, connection: ServerConnection) -> None:
        """A peer was let in."""
        self.opened.append(connection.id)

    def connection_closed(self, connection: ServerConnection, reason: str) -> None:
        """A peer is gone."""
        self.closed.append((connection.id, reason))

    def connection_refused(self, connection: ServerConnection, error: RemoteProtocolError) -> None:
        """A peer broke a rule."""
        self.refused.append((connection.id, error.reason, str(error)))

    @property
    def reasons(self) -> list[str]:
        """Why peers were refused."""
        return [reason for _, reason, _ in self.refused]


class Serving:
    """A server that listens, its clock, and those who are connected to it."""

    def __init__(self, server: RemotingServer, clock: FakeClock, heard: Heard) -> None:
        self.server = server
        self.clock = clock
        self.heard = heard
        self.addresses: list[tuple[str, int]] = []
        self.peers: list[RawPeer] = []

    async def connect(self, *, receive_buffer: int = 0) -> RawPeer:
        """A peer that the server has let in, or refused."""
        before = self._met()
        peer = await RawPeer.connect(self.addresses[0], receive_buffer=receive_buffer)
        self.peers.append(peer)
        await until(lambda: self._met() > before)
        return peer

    def _met(self) -> int:
        return len(self.heard.opened) + sum(
            self.server.refusals[key] for key in ("connections", "connections_per_ip", "memory")
        )

    def connection_of(self, peer: RawPeer) -> ServerConnection:
        """The server's end of a peer."""
        [found] = [one for one in self.server.connections.values() if one.peer == peer.address]
        return found


class _Done(Exception):  # noqa: N818 - no error: it ends the TaskGroup
    """The test is over."""


@asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler] | None = None,
    *,
    concurrent: frozenset[int] = frozenset(),
    limits: ServerLimits | None = None,
    fast_lane: FastLane = no_fast_lane,
    hosts: Sequence[str] = ("127.0.0.1",),
    budget: MemoryBudget | None = None,
) -> AsyncIterator[Serving]:
    """Serve ECHO, which answers with the question's body, FAIL, which has a bug, and the given handlers."""
    clock, heard = FakeClock(), Heard()
    table: dict[int, Handler] = {ECHO: echo, FAIL: fail, **(handlers or {})}
    failed: BaseException | None = None
    async with asyncio.timeout(GUARD_SECONDS):
        try:
            async with asyncio.TaskGroup() as tasks:
                dispatcher = Dispatcher(table, concurrent=concurrent, native_ext={"boot_id": "b00t"})
                server = RemotingServer(
                    dispatcher, heard, clock=clock, tasks=tasks, limits=limits, fast_lane=fast_lane, budget=budget
                )
                served = Serving(server, clock, heard)
                try:
                    served.addresses = await server.listen(hosts, 0)
                    yield served
                except BaseException as error:  # noqa: BLE001 - raised again when the server is gone
                    failed = error
                server.stop_accepting()
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
    """A handler that answers with the question's body and ext fields."""
    return Reply(request.command.body, request.command.ext_fields)


async def fail(request: Request) -> Reply:
    """A handler with a bug."""
    raise ZeroDivisionError(f"request {request.command.opaque}")
