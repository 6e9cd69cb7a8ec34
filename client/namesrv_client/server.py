"""What does one NameServer answer, in which protocol, and how far is it to be trusted?"""

from collections.abc import Callable, Sequence
from typing import Final

from namesrv_client.answer import Answer
from namesrv_client.decode import PulledRoutes, pulled_routes, route_from_json, server_info
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.backoff import Backoff
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.clock import Clock
from namesrv_remoting.bodies.extensions import to_msgpack
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_remoting.errors import RequestCodeNotSupportedError, TopicNotExistError

# Clients ask their questions themselves; this only keeps them from dialling a dead server all the time.
_BACKOFF: Final = Backoff(0.1, 1.0)


class Server:
    """The connection to one NameServer, and what is known of the server at its other end.

    Before the first question on a connection the server is asked who it is. Its run is its boot id; of a server that
    has none, as Apache's, it is the connection, which cannot outlive the process at its end.
    """

    def __init__(
        self, address: str, settings: ClientSettings, clock: Clock, on_lost: Callable[["Server"], None]
    ) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._on_lost = on_lost
        self.client = RemotingClient(
            address,
            clock=clock,
            connect_timeout_seconds=settings.connect_timeout_seconds,
            backoff=_BACKOFF,
            on_connection_lost=lambda _: self._lost(),
        )
        # None: not asked on this connection
        self.is_native: bool | None = None
        self.run: str | None = None
        # monotonic: until then its brokers may not all be back, and what it takes out of a route may still be coming
        self.warm_at = 0.0
        # the same for a topic that nobody knows, of which it is enough that nothing speaks for a restart
        self.denies_at = 0.0
        # monotonic: when it last said anything
        self.answered_at = float("-inf")
        self._connections = 0

    def __repr__(self) -> str:
        protocol = {None: "not met", True: "native", False: "rocketmq"}[self.is_native]
        return f"<Server [{self.address} | {protocol} | {self.run}]>"

    @property
    def is_warm(self) -> bool:
        """Whether what it does not know of a route does not exist."""
        return self._clock.monotonic() >= self.warm_at

    @property
    def can_deny(self) -> bool:
        """Whether a topic that it does not know does not exist."""
        return self._clock.monotonic() >= self.denies_at

    # -- who is it? ---------------------------------------------------------------------------------------------------

    async def meet(self, timeout_seconds: float) -> None:
        """Find out which protocol it speaks and which run it is, once on each connection.

        Raises:
            RemotingError: it cannot be asked.
        """
        if self.is_native is not None:
            return
        if self._settings.protocol == "rocketmq":
            self._is_rocketmq()
            return
        try:
            await self.introduce(timeout_seconds)
        except RequestCodeNotSupportedError:
            if self._settings.protocol == "native":
                raise
            self._is_rocketmq()

    async def introduce(self, timeout_seconds: float) -> None:
        """Ask who it is, now. In JSON: Apache's server refuses the code, and closes on a serialize type of ours.

        Raises:
            RemotingError: it does not answer, or not natively.
        """
        answer = await self.client.invoke(RequestCode.SERVER_INFO, timeout_seconds=timeout_seconds)
        info = server_info(answer.body)
        self._answered()
        self.is_native = True
        if info.boot_id != self.run:
            self._is_another_run(info.boot_id, info.uptime_seconds)

    def _is_another_run(self, run: str, uptime_seconds: float) -> None:
        self.run = run
        self.warm_at = self.denies_at = self._clock.monotonic() + self._settings.warm_up_seconds - uptime_seconds

    def _is_rocketmq(self) -> None:
        """It does not say how long it has run. A connection that was lost may have been lost to a restart."""
        self.is_native = False
        self._connections += 1
        self.run = f"{self.address}#{self._connections}"
        now = self._clock.monotonic()
        self.warm_at = now + self._settings.warm_up_seconds
        self.denies_at = now if self._connections == 1 else self.warm_at

    def _lost(self) -> None:
        self.is_native = None
        self._on_lost(self)

    def _answered(self) -> None:
        self.answered_at = self._clock.monotonic()

    # -- questions ----------------------------------------------------------------------------------------------------

    async def route(self, topic: str, timeout_seconds: float) -> Answer:
        """All about one topic, in the protocol that it speaks. Raises RemotingError."""
        if self.is_native:
            return await self.pull([topic], timeout_seconds)
        return await self.route_by_topic(topic, timeout_seconds)

    async def pull(
        self, topics: Sequence[str], timeout_seconds: float, *, since: int | None = None, wait_seconds: float = 0.0
    ) -> Answer:
        """PULL_ROUTES: all about the topics, or what changed of them since a revision of this run; natively.

        With a wait, the server holds the answer until something has changed.

        Raises:
            RemotingError: it does not answer, or refuses.
        """
        question = {
            "topics": topics,
            "boot_id": None if since is None else self.run,
            "since": since or 0,
            "wait_ms": int(wait_seconds * 1000),
        }
        answer = await self.client.invoke(
            RequestCode.PULL_ROUTES,
            body=to_msgpack(question),
            timeout_seconds=timeout_seconds + wait_seconds,
            serialize_type=SerializeType.MSGPACK,
        )
        pulled: PulledRoutes = pulled_routes(answer.body)
        self._answered()
        if pulled.boot_id != self.run:
            # restarted behind a connection that lived on (a proxy): as young as it can be
            self._is_another_run(pulled.boot_id, 0.0)
        return Answer(
            run=pulled.boot_id,
            is_warm=self.is_warm,
            topics=topics,
            routes=pulled.routes,
            revision=pulled.revision,
            is_conditional=since is not None and not pulled.full,
        )

    async def route_by_topic(self, topic: str, timeout_seconds: float) -> Answer:
        """GET_ROUTEINFO_BY_TOPIC, as RocketMQ's clients ask it. Raises RemotingError."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        if self._settings.zone_name:
            fields |= {"__ZONE_NAME": self._settings.zone_name, "__ZONE_MODE": "true"}
        try:
            answer = await self.client.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields, timeout_seconds=timeout_seconds
            )
            route = route_from_json(answer.body)
        except TopicNotExistError:
            route = None
        self._answered()
        # met on a connection that is gone: the answer came over the next one
        run = self.run if self.is_native is False and self.run is not None else f"{self.address}#?"
        return Answer(run=run, is_warm=self.is_warm, topics=(topic,), routes={topic: route})
