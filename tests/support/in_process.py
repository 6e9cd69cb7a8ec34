"""Runs a whole NameServer in the test's own process: on 127.0.0.1, port 0, and a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from namesrv.context import Namesrv
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, Effect
from namesrv.server.controller import NamesrvController
from namesrv.settings.model import Settings
from namesrv_remoting.aio.connection import ServerConnection
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, until
from tests.support.namesrv_peer import NamesrvPeer

E = TypeVar("E", bound=Effect)

HOST = "127.0.0.1"


class InProcess:
    """A running server, seen from inside, and the peers that were connected to it."""

    def __init__(
        self, settings: Settings, clock: FakeClock, data_dir: Path, observers: Sequence[Callable[[Effect], None]]
    ) -> None:
        self.clock = clock
        self.data_dir = data_dir
        # what has happened and was not taken yet, oldest first
        self.effects: list[Effect] = []
        # heartbeats: the broker, its live entry, the silence before
        self.touches: list[tuple[BrokerAddrInfo, BrokerLiveInfo, float]] = []
        self.controller = NamesrvController(
            settings,
            clock,
            observers=[self.effects.append, *observers],
            touch_observers=[lambda *touch: self.touches.append(touch)],
        )
        # done when the server has ended
        self.serving = asyncio.create_task(self.controller.serve())
        self._peers: list[NamesrvPeer] = []

    @property
    def namesrv(self) -> Namesrv:
        return self.controller.namesrv

    @property
    def address(self) -> tuple[str, int]:
        return self.controller.addresses[0]

    @property
    def where(self) -> str:
        """The same, as a list of NameServers has it."""
        return "{}:{}".format(*self.address)

    async def connect(self) -> NamesrvPeer:
        """A peer that the server has let in."""
        peer = await NamesrvPeer.connect(self.address)
        self._peers.append(peer)
        await until(lambda: self.find_connection(peer) is not None)
        return peer

    def connection_of(self, peer: NamesrvPeer) -> ServerConnection:
        found = self.find_connection(peer)
        assert found is not None
        return found

    def find_connection(self, peer: NamesrvPeer) -> ServerConnection | None:
        connections = self.namesrv.connections.values()
        return next((connection for connection in connections if connection.peer == peer.address), None)

    async def effect(self, kind: type[E]) -> E:
        """The next effect of a kind, once it has happened; it and those before it are taken."""
        await until(lambda: any(isinstance(effect, kind) for effect in self.effects))
        while True:
            effect = self.effects.pop(0)
            if isinstance(effect, kind):
                return effect

    def effects_of(self, kind: type[E]) -> list[E]:
        """All effects of a kind that were not taken yet; nothing is taken."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def taken(self, kind: type[E]) -> list[E]:
        """All effects of a kind until now; everything until now is taken."""
        found = self.effects_of(kind)
        self.effects.clear()
        return found

    async def hang_up(self, peer: NamesrvPeer) -> None:
        """Close a peer's connection, and return when the server has noticed."""
        peer.close()
        await until(lambda: self.find_connection(peer) is None)

    async def stop(self) -> None:
        """Ask the server to leave, and return when it has: it drains on the clock, everything else takes real time."""
        self.controller.ask_to_stop()
        while not self.serving.done():
            await self.clock.advance(0.02)

    async def _end(self) -> None:
        await self.stop()
        # after a bug nothing was closed, since a process just ends, and nothing may be begun
        self.namesrv.is_draining = True
        self.controller.server.stop_accepting()
        self.controller.server.abort_all()
        for peer in self._peers:
            peer.writer.transport.abort()
        await until(lambda: not self.namesrv.connections)


@asynccontextmanager
async def namesrv_in_process(
    data_dir: Path,
    *,
    clock: FakeClock | None = None,
    observers: Sequence[Callable[[Effect], None]] = (),
    **overrides: Any,
) -> AsyncIterator[InProcess]:
    """Serve until the block ends, which must be within half a minute; a bug of the server's is raised there."""
    clock = clock or FakeClock()
    place: dict[str, Any] = {"listen_host": HOST, "listen_port": 0, "http_listen": "", "data_dir": data_dir}
    settings = Settings(**{**place, "drain_seconds": 0.0, **overrides})
    async with asyncio.timeout(GUARD_SECONDS):
        server = InProcess(settings, clock, data_dir, observers)
        await until(lambda: server.controller.listening.is_set() or server.serving.done())
        if server.serving.done():
            await server.serving
        try:
            yield server
        finally:
            await server._end()
        await server.serving
