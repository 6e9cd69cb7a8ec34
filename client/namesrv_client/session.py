"""Which NameServer is asked, and when is it another one?

One server, chosen at random, stays the chosen one until it fails; a call then goes on to the next, trying each server
once. A server that answers "not ready" or "go away" has failed as well.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from namesrv_client.decode import PulledRoutes, members, pulled_routes, route_from_json
from namesrv_client.errors import RouteUnavailableError
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.backoff import Backoff
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.clock import Clock
from namesrv_remoting.aio.timeouts import timeout_on
from namesrv_remoting.bodies.extensions import to_msgpack
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    ConnectionClosedError,
    GoAwayError,
    NotReadyError,
    RemotingError,
    RequestCodeNotSupportedError,
    RequestTimeoutError,
    ResponseError,
    SystemBusyError,
    TopicNotExistError,
)

T = TypeVar("T")

# what an answer tells of the server and not of the question
_SERVER_FAILED = (NotReadyError, GoAwayError, SystemBusyError)
# how much longer than its wait a watch may take
_WATCH_GRACE_SECONDS = 2.0


@dataclass(slots=True)
class Server:
    """One NameServer as this client knows it."""

    address: str
    client: RemotingClient
    # None: not asked yet
    is_native: bool | None = None
    # of the run that answered last
    boot_id: str | None = None
    # changes up to this one of that run are known
    revision: int = 0
    # monotonic: until then its brokers may not all be back, and what it lacks proves nothing
    warm_at: float = 0.0


class ServerSession:
    """The chosen server, and the way to the next."""

    def __init__(
        self,
        settings: ClientSettings,
        clock: Clock,
        *,
        on_lost: Callable[[str], None],
        shuffle: Callable[[list[str]], None] = random.shuffle,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_lost = on_lost
        self._shuffle = shuffle
        # in the order in which they are tried; the first is the chosen one
        self._order: list[str] = []
        self._servers: dict[str, Server] = {}
        # why each server failed the last time
        self.errors: dict[str, str] = {}
        # whose changes were asked for last
        self._synced: str | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def chosen(self) -> str | None:
        """The address that is asked first; None when no server is known."""
        return self._order[0] if self._order else None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All servers, in the order in which they would be tried."""
        return tuple(self._order)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Take another list: the chosen server stays if it is in it, the others come in random order."""
        chosen = self.chosen
        order = list(addresses)
        self._shuffle(order)
        if chosen in order:
            order.remove(chosen)
            order.insert(0, chosen)
        self._order = order
        for address in list(self._servers):
            if address not in order:
                self._drop(address)

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections."""
        found = (server.client.socket_descriptor for server in self._servers.values())
        return [descriptor for descriptor in found if descriptor is not None]

    async def close(self) -> None:
        """Close all connections."""
        for address in list(self._servers):
            self._drop(address)
        if self._closing:
            await asyncio.wait(self._closing)

    # -- questions ----------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> tuple[Server, TopicRouteData | None]:
        """The route of one topic, None if it positively does not exist. Raises RouteUnavailableError."""

        async def ask(server: Server, timeout_seconds: float) -> TopicRouteData | None:
            if await self._is_native(server, timeout_seconds):
                # not `since`: this topic may have changed long before it was first asked for
                pulled = await self._pull(server, [topic], 0, timeout_seconds, is_full=True)
                return pulled.routes.get(topic)
            return await self._route_by_topic(server, topic, timeout_seconds)

        return await self._call(ask)

    async def changes(self, topics: list[str]) -> tuple[Server, Mapping[str, TopicRouteData | None]]:
        """Routes that changed since the chosen server was last asked; all of them from one that was not.

        From a RocketMQ server one question per topic: a topic that could not be asked about is left out, and does not
        keep the others from being.
        """

        async def ask(server: Server, timeout_seconds: float) -> Mapping[str, TopicRouteData | None]:
            if server.address != self._synced:
                # what was learnt from another server meanwhile is not in this one's changes
                server.revision = 0
            if await self._is_native(server, timeout_seconds):
                pulled = await self._pull(server, topics, 0, timeout_seconds)
                self._synced = server.address
                server.boot_id, server.revision = pulled.boot_id, pulled.revision
                return pulled.routes
            return await self._routes_by_topic(server, topics, timeout_seconds)

        return await self._call(ask)

    async def watch(self, topics: list[str], wait_seconds: float) -> tuple[Server, Mapping[str, TopicRouteData | None]]:
        """As `changes`, but held by the server until something changes or the wait is over; the chosen server only.

        Raises:
            RouteUnavailableError: there is no chosen server, or it does not speak the native protocol.
            RemotingError: the server failed; the next call chooses another.
        """
        server = self._server(self._order[0]) if self._order else None
        if server is None or not await self._is_native(server, self._settings.attempt_timeout_seconds):
            raise RouteUnavailableError("no native NameServer to watch")
        if server.address != self._synced or not server.revision:
            # nothing to compare with yet
            return await self.changes(topics)
        try:
            pulled = await self._pull(server, topics, wait_seconds, wait_seconds + _WATCH_GRACE_SECONDS)
        except RemotingError as error:
            self._failed(server.address, error)
            raise
        server.boot_id, server.revision = pulled.boot_id, pulled.revision
        return server, pulled.routes

    async def ping(self) -> None:
        """See whether the chosen server still answers. Raises RemotingError, and then it is not the chosen one."""
        if not self._order:
            return
        server = self._server(self._order[0])
        try:
            await self._info(server, self._settings.attempt_timeout_seconds)
        except ResponseError:
            pass
        except RemotingError as error:
            self._failed(server.address, error)
            raise

    # -- one call, over the servers -----------------------------------------------------------------------------------

    async def _call(self, ask: Callable[[Server, float], Awaitable[T]]) -> tuple[Server, T]:
        """Ask the chosen server, then each of the others, until one answers or the time is up."""
        settings = self._settings
        deadline = self._clock.monotonic() + settings.call_timeout_seconds
        tried = list(self._order)
        for address in tried:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            server = self._server(address)
            try:
                async with timeout_on(self._clock, min(left, settings.attempt_timeout_seconds)):
                    return server, await ask(server, min(left, settings.attempt_timeout_seconds))
            except TimeoutError:
                self._failed(address, RequestTimeoutError(f"no answer within {settings.attempt_timeout_seconds:g} s"))
            except _SERVER_FAILED as error:
                self._failed(address, error)
            except ResponseError as error:
                # the question's fault, or a bug: another server would say the same
                raise RouteUnavailableError(f"{address}: {error}") from error
            except RemotingError as error:
                self._failed(address, error)
        if not tried:
            raise RouteUnavailableError("no NameServer is known")
        reasons = "; ".join(f"{address}: {self.errors.get(address, 'not tried')}" for address in tried)
        raise RouteUnavailableError(f"no NameServer answered: {reasons}")

    # -- one question, to one server ----------------------------------------------------------------------------------

    async def _is_native(self, server: Server, timeout_seconds: float) -> bool:
        if self._settings.protocol != "auto":
            server.is_native = self._settings.protocol == "native"
        fresh = server.is_native is None or (server.is_native and server.boot_id is None)
        if fresh:
            try:
                await self._info(server, timeout_seconds)
            except (ConnectionClosedError, RequestCodeNotSupportedError):
                if self._settings.protocol == "native":
                    raise
                # Apache's server closes the connection on a serialize type that it does not know
                server.is_native = False
        return bool(server.is_native)

    async def _info(self, server: Server, timeout_seconds: float) -> None:
        answer = await server.client.invoke(
            RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
        )
        found = members(answer.body)
        server.is_native = True
        boot_id = found.get("boot_id")
        if isinstance(boot_id, str) and boot_id != server.boot_id:
            self._is_another_run(server, float(found.get("uptime_seconds", 0.0)))
            server.boot_id = boot_id

    def _is_another_run(self, server: Server, uptime_seconds: float) -> None:
        server.revision = 0
        server.warm_at = self._clock.monotonic() + self._settings.warm_up_seconds - uptime_seconds

    async def _pull(
        self, server: Server, topics: list[str], wait_seconds: float, timeout_seconds: float, *, is_full: bool = False
    ) -> PulledRoutes:
        question = {
            "topics": topics,
            "boot_id": server.boot_id if server.revision and not is_full else None,
            "since": 0 if is_full else server.revision,
            "wait_ms": int(wait_seconds * 1000),
        }
        answer = await server.client.invoke(
            RequestCode.PULL_ROUTES,
            body=to_msgpack(question),
            timeout_seconds=timeout_seconds,
            serialize_type=SerializeType.MSGPACK,
        )
        pulled = pulled_routes(answer.body)
        if server.boot_id is not None and pulled.boot_id != server.boot_id:
            # restarted behind a connection that lived on (a proxy): as young as it can be
            self._is_another_run(server, 0.0)
        return pulled

    async def _route_by_topic(self, server: Server, topic: str, timeout_seconds: float) -> TopicRouteData | None:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if self._settings.zone_name:
            fields |= {"__ZONE_NAME": self._settings.zone_name, "__ZONE_MODE": "true"}
        try:
            answer: RemotingCommand = await server.client.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields, timeout_seconds=timeout_seconds
            )
        except TopicNotExistError:
            return None
        return route_from_json(answer.body)

    async def _routes_by_topic(
        self, server: Server, topics: list[str], timeout_seconds: float
    ) -> dict[str, TopicRouteData | None]:
        found: dict[str, TopicRouteData | None] = {}
        for topic in topics:
            try:
                found[topic] = await self._route_by_topic(server, topic, timeout_seconds)
            except _SERVER_FAILED:
                raise
            except ResponseError as error:
                self.errors[server.address] = f"{topic}: {error}"
        return found

    # -- servers ------------------------------------------------------------------------------------------------------

    def _server(self, address: str) -> Server:
        known = self._servers.get(address)
        if known is None:
            client = RemotingClient(
                address,
                clock=self._clock,
                connect_timeout_seconds=self._settings.connect_timeout_seconds,
                backoff=Backoff(0.1, 1.0),
                on_connection_lost=lambda _: self._lost(address),
            )
            known = self._servers[address] = Server(address, client)
        return known

    def _lost(self, address: str) -> None:
        server = self._servers.get(address)
        if server is not None:
            self._is_another_run(server, 0.0)
            server.boot_id = None
            if self._settings.protocol == "auto":
                server.is_native = None
        self._on_lost(address)

    def _failed(self, address: str, error: RemotingError) -> None:
        """Not the chosen one any more; what it was asked last may still be on its way, so that its connection goes."""
        self.errors[address] = str(error) or type(error).__name__
        if address in self._order and len(self._order) > 1:
            self._order.remove(address)
            self._order.append(address)
        if isinstance(error, RequestTimeoutError):
            self._drop(address)

    def _drop(self, address: str) -> None:
        server = self._servers.pop(address, None)
        if server is not None:
            task = asyncio.ensure_future(server.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
