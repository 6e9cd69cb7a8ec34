"""A session of a client with servers, without the client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from namesrv_client import RouteUnavailableError
from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.response import RouteResponse
from namesrv_client.routes.session import ServerSession
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support.apache_server import ApacheServer
from tests.support.fake_clock import GUARD_SECONDS, FakeClock, completed, passing
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.route_clients import (
    BROKER_A,
    NO_CALLBACKS,
    client_settings,
    registered,
)
from tests.support.scripted_server import ScriptedServer
from tests.support.tcp_proxy import TcpProxy

T = TypeVar("T")
# topics that take more than one round of requests in RocketMQ's protocol
MANY = [f"t{number}" for number in range(40)]


class Scene:
    """A session with a clock and a cache that applies its responses."""

    def __init__(
        self, clock: FakeClock, shuffle: Callable[[list[str]], None] = lambda _: None, **settings: Any
    ) -> None:
        self.clock = clock
        self.cache = KnownRoutes(clock)
        chosen, protocols = client_settings("10.0.0.1:9876", **settings), ServerProtocols()
        self.session = ServerSession(
            chosen, clock, self.cache.point, protocols=protocols, shuffle=shuffle, events=NO_CALLBACKS
        )
        self.answers: list[RouteResponse] = []

    def take(self, answer: RouteResponse) -> None:
        """Record a response and apply it."""
        self.answers.append(answer)
        self.cache.apply(answer, "pull", is_sync=True)

    async def timed(self, work: Coroutine[Any, Any, T]) -> tuple[asyncio.Future[T], float]:
        """Advance the clock until the work is done; return its result or error, and the seconds."""
        asking = asyncio.ensure_future(work)
        return asking, await passing(self.clock, asking.done)

    async def changes(self, *topics: str) -> list[str]:
        """Request changes; return the sorted topics of the responses."""
        self.answers.clear()
        await self.session.refresh(topics, self.take)
        return sorted(topic for answer in self.answers for topic in answer.routes)

    async def routes(self, *topics: str) -> dict[str, bool]:
        """Request topics; return which of them exist, or raise RouteUnavailableError when one is unknown to all."""
        self.answers.clear()
        for reason in (await self.session.fetch(topics, self.take)).values():
            raise RouteUnavailableError(reason)
        return {topic: route is not None for answer in self.answers for topic, route in answer.routes.items()}


@asynccontextmanager
async def session_of(
    *servers: InProcess | TcpProxy | ApacheServer | ScriptedServer, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[Scene]:
    """A session with these servers in this order."""
    scene = Scene(clock or FakeClock(), **settings)
    async with asyncio.timeout(GUARD_SECONDS):
        scene.session.use(
            tuple(server.where if isinstance(server, InProcess) else server.address for server in servers)
        )
        try:
            yield scene
        finally:
            await completed(scene.clock, scene.session.close())


@asynccontextmanager
async def native(path: Path, count: int = 2, **settings: Any) -> AsyncIterator[tuple[Scene, list[InProcess], TcpProxy]]:
    """A session with NameServers that each have broker-a; the first is behind a proxy."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(count):
            server = await stack.enter_async_context(namesrv_in_process(path / str(number), clock=clock))
            await registered(server, BROKER_A)
            servers.append(server)
        proxy = await stack.enter_async_context(TcpProxy(servers[0].address))
        yield await stack.enter_async_context(session_of(proxy, *servers[1:], clock=clock, **settings)), servers, proxy
