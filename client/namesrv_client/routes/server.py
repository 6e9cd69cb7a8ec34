"""One NameServer: its connection, its protocol, how far its answers can be trusted, and questions about many topics.

A native one is asked in as few questions as fit into frames, one that speaks RocketMQ's protocol topic by topic; and
what is wrong with one topic never touches the others.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from namesrv_client.routes.cache import Answer, SyncPoint
from namesrv_client.routes.status import ServerStatus
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import PullRoutesRequest, ServerInfo, read_routes
from namesrv_remoting.bodies.route import TopicRouteData, in_zone, read_route
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import (
    ConnectionClosedError,
    GoAwayError,
    NoPermissionError,
    NotReadyError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    SystemBusyError,
    SystemError_,
    TopicNotExistError,
)
from namesrv_runtime.backoff import Backoff
from namesrv_runtime.clock import Clock
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client.connection")

# gets each answer as it comes
Take = Callable[[Answer], None]

# what an answer tells of the server and not of the question
SERVER_FAILED: Final = (NotReadyError, GoAwayError, SystemBusyError)
# what may be said of many topics for the sake of one: the answer does not fit into a frame, a topic is bad, or this
# account may not ask for it
PART_REFUSED: Final = (SystemError_, NoPermissionError)
# Topics of one full question: with eight groups of brokers the answer has 0.8 MB, and the loop decodes it in one go.
PART: Final = 500
# Refused parts after which the server is to blame.
_REFUSALS: Final = 20
# GET_ROUTEINFO_BY_TOPIC questions that are on their way at a time
_BY_TOPIC: Final = 16
# Short: another server is asked meanwhile, and this only keeps a dead one from being dialled for every question.
_BACKOFF: Final = Backoff(0.1, 1.0)
# of all clients of the process
_connection_numbers: Final = itertools.count(1)


class Server:
    """The connection to one NameServer, and what is known of the server at its other end.

    Each connection begins by asking which run of the server is there. Its run is its boot id; of a server that has
    none, as Apache's, it is the connection, which cannot outlive the process at its end.
    """

    def __init__(
        self, address: str, settings: ClientSettings, clock: Clock, protocols: ServerProtocols, events: ServerEvents
    ) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._protocols = protocols
        self._events = events
        self._client = self._new_client()
        # SERVER_INFO that is under way
        self._identifying: asyncio.Task[RemotingError | None] | None = None
        # None: not known on this connection
        self.is_native: bool | None = None
        self.run: str | None = None
        # monotonic: until then its brokers may not all be back, and what it takes out of a route may still be coming
        self._warm_at = 0.0
        # the same for a topic that nobody knows, of which it is enough that nothing speaks for a restart
        self._denies_at = 0.0
        # monotonic: when it last said anything
        self.answered_at = float("-inf")
        # why it, or a question to it, failed the last time
        self.error: str | None = None
        # connections on which it turned out to speak RocketMQ's protocol
        self._rocketmq_connections = 0
        # connections on which it has answered, and whether there is one now, and since when (wall clock)
        self.connections = 0
        self.is_connected = False
        self._since = clock.wall()
        # questions about routes by how they ended
        self.pulls: Counter[str] = Counter()

    def __repr__(self) -> str:
        protocol = {None: "not identified", True: "native", False: "rocketmq"}[self.is_native]
        return f"<Server [{self.address} | {protocol} | {self.run}]>"

    @property
    def is_warm(self) -> bool:
        """Whether what it does not know of a route does not exist."""
        return self._clock.monotonic() >= self._warm_at

    @property
    def can_deny(self) -> bool:
        """Whether a topic that it does not know does not exist."""
        return self._clock.monotonic() >= self._denies_at

    def status(self, *, is_chosen: bool) -> ServerStatus:
        """What is known of it, for any thread."""
        run, now = self.run, self._clock.monotonic()
        return ServerStatus(
            address=self.address,
            state="connected" if self.is_connected else "disconnected" if self.connections or self.error else "unused",
            since=self._since,
            is_chosen=is_chosen,
            protocol=None if self.is_native is None else "native" if self.is_native else "rocketmq",
            boot_id=None if run is None or run.startswith(f"{self.address}#") else run,
            last_answer=self._clock.wall() - (now - self.answered_at) if self.answered_at > float("-inf") else None,
            last_error=self.error,
            pulls=dict(self.pulls),
            reconnects=max(0, self.connections - 1),
        )

    def note(self, failure: object) -> str:
        """Keep what went wrong, in words."""
        self.error = str(failure) or type(failure).__name__
        return self.error

    async def identify(self, timeout_seconds: float) -> None:
        """Find out which protocol it speaks and which run it is, once on each connection. Raises RemotingError.

        Of a server that is known to be native nothing is waited for: it is asked together with the first question.
        """
        if self.is_native is not None:
            return
        protocol = self._settings.protocol
        known = self._client.speaks_native() if protocol == "auto" else protocol == "native"
        if known is False:
            self._is_rocketmq()
            return
        if self._identifying is None:
            self._identifying = asyncio.create_task(self._identify(timeout_seconds))
            # so that it is sent first
            await asyncio.sleep(0)
        if known:
            self.is_native = True
        elif (failure := await self._identified()) is not None:
            raise failure

    async def _identified(self) -> RemotingError | None:
        """Wait for SERVER_INFO, if it is under way; why it failed."""
        asking = self._identifying
        if asking is None:
            return None
        # waited for, not awaited: whoever gives up must not take the answer away from the others
        await asyncio.wait([asking])
        return ConnectionClosedError(f"{self.address} is no longer used") if asking.cancelled() else asking.result()

    async def _identify(self, timeout_seconds: float) -> RemotingError | None:
        """A failure is a value: there may be nobody left to raise it to."""
        try:
            if self._settings.protocol == "native":
                await self.ask_run(timeout_seconds)
            elif (body := await self._client.server_info(timeout_seconds)) is None:
                self._is_rocketmq()
            else:
                self._is_native_run(NATIVE.read_answer(ServerInfo, body))
        except RemotingError as error:
            return error
        finally:
            self._identifying = None
        return None

    async def ask_run(self, timeout_seconds: float) -> None:
        """Ask which run it is, now and natively. Raises RemotingError."""
        answer = await self._client.invoke(
            RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds, serialize_type=SerializeType.MSGPACK
        )
        self._is_native_run(NATIVE.read_answer(ServerInfo, answer.body))

    def _is_native_run(self, info: ServerInfo) -> None:
        self.is_native = True
        self._is_run(info.boot_id, info.uptime_seconds)

    def _is_run(self, boot_id: str, uptime_seconds: float) -> None:
        self._answers()
        if boot_id != self.run:
            self.run = boot_id
            self._warm_at = self._denies_at = self.answered_at + self._settings.warm_up_seconds - uptime_seconds

    def _is_rocketmq(self) -> None:
        """It does not say how long it has run. A connection that was lost may have been lost to a restart."""
        self.is_native = False
        self._rocketmq_connections += 1
        self.run = f"{self.address}#{next(_connection_numbers)}"
        now = self._clock.monotonic()
        self._warm_at = now + self._settings.warm_up_seconds
        self._denies_at = now if self._rocketmq_connections == 1 else self._warm_at

    def _answers(self) -> None:
        self.answered_at = self._clock.monotonic()
        # an answer may be looked at after its connection has ended
        if not self.is_connected and self._client.connected:
            self.is_connected = True
            self.connections += 1
            self._since = self._clock.wall()
            no_watches = ", which does not support watches" if self._settings.watch and self.is_native is False else ""
            logger.info("connected to %s%s", self.address, no_watches)
            self._events.connected(self.address)

    def _ends(self, why: str) -> None:
        # another one may answer next
        self.is_native = None
        if self.is_connected:
            self.is_connected = False
            self._since = self._clock.wall()
            logger.info("disconnected from %s: %s", self.address, why)
            self._events.disconnected(self.address, why)

    def _new_client(self) -> RemotingClient:
        return RemotingClient(
            self.address,
            clock=self._clock,
            tls=self._settings.client_tls,
            connect_timeout_seconds=self._settings.connect_timeout_seconds,
            backoff=_BACKOFF,
            on_connection_lost=self._lost,
            protocols=self._protocols,
            credentials=self._settings.credentials(self._clock.wall),
        )

    def _lost(self, error: ConnectionClosedError) -> None:
        self._ends(str(error))

    @property
    def socket_descriptor(self) -> int | None:
        """The file descriptor of the connection; None when there is none."""
        return self._client.socket_descriptor

    async def disconnect(self) -> None:
        """Fail what waits for an answer and close the connection; the next question makes another."""
        old, self._client = self._client, self._new_client()
        self._ends(self.error or "given up")
        await old.close()

    async def close(self) -> None:
        """Disconnect for good."""
        if (asking := self._identifying) is not None:
            asking.cancel()
            await asyncio.wait([asking])
        self._ends("no longer used")
        await self._client.close()

    async def pull(
        self, topics: Sequence[str], timeout_seconds: float, *, since: int | None = None, wait_seconds: float = 0.0
    ) -> Answer:
        """PULL_ROUTES: all about the topics, or what changed of them since a revision of this run; natively.

        With a wait, the server holds the answer until something has changed. Raises RemotingError.
        """
        boot_id = None if since is None else self.run
        question = PullRoutesRequest(list(topics), boot_id, since or 0, int(wait_seconds * 1000))
        answer = await self._client.invoke(
            RequestCode.PULL_ROUTES,
            body=NATIVE.encode(question),
            timeout_seconds=timeout_seconds + wait_seconds,
            serialize_type=SerializeType.MSGPACK,
        )
        pulled = read_routes(answer.body)
        if pulled.boot_id != self.run:
            # SERVER_INFO may be under way, and says how long this run has lasted
            await self._identified()
        # another one now: restarted behind a connection that lived on (a proxy), as young as it can be
        self._is_run(pulled.boot_id, 0.0)
        routes: Mapping[str, TopicRouteData | None] = pulled.routes
        if zone := self._settings.zone_name:
            # as RocketMQ's servers do for those who name one; PULL_ROUTES has no zones
            routes = {topic: None if route is None else in_zone(route, zone) for topic, route in routes.items()}
        return Answer(
            run=pulled.boot_id,
            is_warm=self.is_warm,
            can_deny=self.can_deny,
            topics=topics,
            routes=routes,
            revision=pulled.revision,
            is_conditional=since is not None and not pulled.full,
        )

    async def route_by_topic(self, topic: str, timeout_seconds: float) -> Answer:
        """GET_ROUTEINFO_BY_TOPIC, as RocketMQ's clients ask it. Raises RemotingError."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if self._settings.zone_name:
            fields |= {"__ZONE_NAME": self._settings.zone_name, "__ZONE_MODE": "true"}
        route: TopicRouteData | None = None
        try:
            answer = await self._client.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields, timeout_seconds=timeout_seconds
            )
            route = read_route(answer.body)
            self._answers()
        except ResponseError as error:
            self._answers()
            if not isinstance(error, TopicNotExistError):
                raise
        # The connection may have been lost and made again in between: then nobody knows who answered.
        is_met = self.is_native is not None
        return Answer(
            run=(self.run or "") if is_met else f"{self.address}#",
            is_warm=is_met and self.is_warm,
            can_deny=is_met and self.can_deny,
            topics=(topic,),
            routes={topic: route},
        )

    async def everything(self, topics: Sequence[str], take: Take, timeout_seconds: float) -> bool:
        """All about the topics, so many seconds for each question; whether some was refused, which is noted.

        Raises RemotingError.
        """
        return await (self._pull_in_parts if self.is_native else self._ask_each)(topics, take, timeout_seconds)

    async def changes(self, topics: Sequence[str], point: SyncPoint, take: Take, timeout_seconds: float) -> None:
        """As `everything`, but of the topics that are known as of the point only what has changed."""
        known, others = point.known(self.run, topics) if self.is_native else ([], list(topics))
        if known:
            try:
                take(await self.pull(known, timeout_seconds, since=point.revision))
            except PART_REFUSED as error:
                if isinstance(error, SERVER_FAILED):
                    raise
                point.retain(())
                others = list(topics)
        await self.everything(others, take, timeout_seconds)

    async def _pull_in_parts(self, topics: Sequence[str], take: Take, timeout_seconds: float) -> bool:
        """A part that is refused is halved."""
        parts = [topics[at : at + PART] for at in range(0, len(topics), PART)]
        refusals_left = most_refusals = _REFUSALS + 2 * len(parts)
        while parts:
            part = parts.pop(0)
            try:
                take(await self.pull(part, timeout_seconds))
            except PART_REFUSED as error:
                refusals_left -= 1
                if isinstance(error, SERVER_FAILED) or not refusals_left:
                    raise
                self.note(error)
                if len(part) > 1:
                    parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
        return refusals_left < most_refusals

    async def _ask_each(self, topics: Sequence[str], take: Take, timeout_seconds: float) -> bool:
        """In RocketMQ's protocol: one question per topic, several on their way at a time."""
        waiting = iter(topics)
        failures: list[RemotingError] = []
        refused: list[str] = []

        async def work() -> None:
            for topic in waiting:
                if failures:
                    return
                asked_at = self._clock.monotonic()
                try:
                    await self.identify(timeout_seconds)
                    take(await self.route_by_topic(topic, timeout_seconds))
                except (ResponseError, RemoteProtocolError, RequestTimeoutError) as error:
                    is_silent = isinstance(error, RequestTimeoutError) and self.answered_at < asked_at
                    if isinstance(error, SERVER_FAILED) or is_silent:
                        failures.append(error)
                    else:
                        refused.append(self.note(f"topic {topic}: {error}"))
                except RemotingError as error:
                    failures.append(error)

        await asyncio.gather(*(work() for _ in range(min(_BY_TOPIC, len(topics)))))
        if failures:
            raise failures[0]
        return bool(refused)
