"""A whole NameServer running in the test's own process: on 127.0.0.1, port 0 and a fake clock."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from namesrv.access.audit import AuditLog
from namesrv.access.guard import AccessGuard
from namesrv.access.quotas import RequestLimiter
from namesrv.context import Namesrv
from namesrv.net.protocol import ServerConnection
from namesrv.routeinfo.tables.effects import Effect
from namesrv.server.controller import NamesrvController
from namesrv.server.reload import Reloader
from namesrv.settings.flags import parse
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded, load
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, until
from tests.support.heartbeat_files import Line, of, read_log
from tests.support.namesrv_peer import NamesrvPeer

E = TypeVar("E", bound=Effect)

HOST = "127.0.0.1"


def frames_of_at_most(max_frame_bytes: int) -> Limits:
    """Limits of the default settings, but for the size of frames."""
    limits = Limits.of(Settings())
    limits.server.max_frame_bytes = max_frame_bytes
    return limits


class InProcess:
    """A running server, seen from inside, and its peers."""

    def __init__(
        self,
        settings: Settings,
        clock: FakeClock,
        data_dir: Path,
        origins: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.clock = clock
        self.data_dir = data_dir
        self.controller = NamesrvController(Loaded.of(settings, origins), clock, limits=limits)
        # the last event number and log line number that `forget` marked as seen
        self._last_event = self._last_line = 0
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
        """The address as a list of NameServers contains it."""
        return "{}:{}".format(*self.address)

    async def connect(self, source: str = "", listener: int = 0) -> NamesrvPeer:
        """A peer accepted by the server; `source` is the peer's local address, `listener` counts from `listen_port`."""
        peer = await NamesrvPeer.connect(self.controller.addresses[listener], source=source)
        self._peers.append(peer)
        await until(lambda: self.find_connection(peer) is not None)
        return peer

    def connection_of(self, peer: NamesrvPeer) -> ServerConnection:
        found = self.find_connection(peer)
        assert found is not None
        return found

    def find_connection(self, peer: NamesrvPeer) -> ServerConnection | None:
        connections = self.namesrv.slots.connections.values()
        return next((connection for connection in connections if connection.peer.address == peer.address), None)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Events of RECENT_EVENTS since the last `forget`; heartbeats are not events."""
        found = self.namesrv.events.since(self._last_event, sys.maxsize)
        return [event for event in found if not names or event["event"] in names]

    async def lines(self, *names: str) -> list[Line]:
        """The lines of the heartbeat log since the last `forget`, once they are written."""
        log = self.namesrv.heartbeat_log
        assert log is not None
        await until(lambda: not log.lines.queued)
        lines = [line for line in read_log(self.data_dir) if line["seq"] > self._last_line]
        return of(lines, *names) if names else lines

    @property
    def heartbeats(self) -> int:
        """Number of heartbeats received from registered brokers."""
        return self.namesrv.manager.heartbeats

    async def forget(self) -> None:
        """Skip all events and log lines up to now."""
        self._last_event = self.namesrv.events.last_seq
        if self.namesrv.heartbeat_log is not None:
            self._last_line = max((line["seq"] for line in await self.lines()), default=self._last_line)

    async def hang_up(self, peer: NamesrvPeer) -> None:
        """Close a peer's connection, and return when the server has noticed."""
        peer.close()
        await until(lambda: self.find_connection(peer) is None)

    @property
    def guard(self) -> AccessGuard:
        """The guard of a server with an access file."""
        guard = self.namesrv.access.guard
        assert guard is not None
        return guard

    @property
    def limiter(self) -> RequestLimiter:
        """The limiter of a server with quotas."""
        limiter = self.namesrv.access.limiter
        assert limiter is not None
        return limiter

    @property
    def audit(self) -> AuditLog:
        """The audit trail of a server that keeps one."""
        audit = self.namesrv.access.audit
        assert audit is not None
        return audit

    async def reload_access(self, text: str, *flags: str) -> None:
        """Write another text to the access file, and reload it and these flags."""
        path = self.namesrv.settings.current.access
        Path(path).write_text(text)
        await self.reloader(f"--access={path}", *flags).reload()

    def reloader(self, *flags: str) -> Reloader:
        """The reload that SIGHUP starts, with these flags in addition to the place of this server."""
        place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", "--drain-seconds=0"]
        place += [f"--data-dir={self.data_dir}", f"--nameserver-name={self.namesrv.settings.current.nameserver_name}"]
        return Reloader(self.namesrv, lambda: load(parse([*place, *flags]), {}))

    async def stop(self) -> None:
        """Ask the server to stop, and return when it has; draining follows the fake clock, the rest takes real time."""
        self.controller.ask_to_stop()
        step_seconds = max(0.02, self.namesrv.settings.current.drain_seconds / 100)
        while not self.serving.done():
            await self.clock.advance(step_seconds)
            # A loop that never waits would keep the interpreter's lock from the threads that close the log files.
            await asyncio.wait([self.serving], timeout=0.001)

    async def _end(self) -> None:
        await self.stop()
        # after a bug the process would just end, so that connections may still be open
        self.namesrv.boot.is_draining = True
        self.controller.listeners.close()
        self.controller.server.abort_all()
        for peer in self._peers:
            peer.writer.transport.abort()
        await until(lambda: not self.namesrv.slots.connections)


@asynccontextmanager
async def namesrv_in_process(
    data_dir: Path,
    *,
    clock: FakeClock | None = None,
    origins: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    **overrides: Any,
) -> AsyncIterator[InProcess]:
    """Serve until the block ends; a bug in the server is raised there."""
    clock = clock or FakeClock()
    place: dict[str, Any] = {"listen_host": HOST, "listen_port": 0, "http_listen": "", "data_dir": data_dir}
    settings = Settings(**{**place, "drain_seconds": 0.0, **overrides})
    async with asyncio.timeout(GUARD_SECONDS):
        server = InProcess(settings, clock, data_dir, origins, limits)
        await until(lambda: server.controller.listening.is_set() or server.serving.done())
        if server.serving.done():
            await server.serving
        # another test's server may have used this port with another protocol
        PROCESS_PROTOCOLS.forget(server.where)
        try:
            yield server
        finally:
            await server._end()
        await server.serving


@asynccontextmanager
async def guarded_namesrv(directory: Path, access: str, **how: Any) -> AsyncIterator[InProcess]:
    """A server as in `namesrv_in_process`, with an access file of this text that only its owner can read."""
    path = directory / "access.toml"
    path.touch(mode=0o600)
    path.write_text(access)
    async with namesrv_in_process(directory / "data", access=str(path), **how) as server:
        yield server
