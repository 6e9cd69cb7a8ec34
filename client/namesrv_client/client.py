"""The route client for asyncio: gets routes for producers and consumers, and keeps the routes fresh."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from namesrv_client.lifecycle import ClientLifecycle
from namesrv_client.observers import ClientObservers
from namesrv_client.queues.selection import BrokerFaults, QueueSelector
from namesrv_client.queues.topic_queues import LOGICAL_PREFIX, MessageQueue, PublishInfo, endpoint, subscribe_queues
from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.keeper import RouteKeeper
from namesrv_client.routes.route import Route, RouteChange, RouteChanges, RouteUnavailableError
from namesrv_client.routes.session import ServerSession
from namesrv_client.routes.status import ClientStatus
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS, ServerProtocols
from namesrv_remoting.codes import MASTER_ID
from namesrv_runtime.clock import Clock, SystemClock
from namesrv_runtime.name_servers import NameServerList
from namesrv_runtime.server_events import ServerEvents

logger: Final = logging.getLogger("namesrv_client")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One instance of a broker group."""

    broker_name: str
    broker_id: int
    address: str

    @property
    def is_slave(self) -> bool:
        """True for a slave, which accepts no messages."""
        return self.broker_id != MASTER_ID


class RouteClient:
    """Gets routes and keeps them fresh, as an async context manager; made of settings, or of a list of NameServers.

    Known routes are served from memory, even while all servers are down. All methods belong to the loop that entered
    the context; see SyncRouteClient for threads.
    """

    def __init__(  # noqa: PLR0913 - optional keyword arguments
        self,
        settings: ClientSettings | str | Iterable[str],
        *,
        on_connected: Callable[[str], object] | None = None,
        on_disconnected: Callable[[str, str], object] | None = None,
        on_ready: Callable[[], object] | None = None,
        on_servers_changed: Callable[[tuple[str, ...]], object] | None = None,
        clock: Clock | None = None,
        protocols: ServerProtocols = PROCESS_PROTOCOLS,
        random_unit: Callable[[], float] = random.random,
        shuffle: Callable[[list[str]], None] = random.shuffle,
    ) -> None:
        self.settings = settings = ClientSettings.of(settings)
        self._clock = clock = clock or SystemClock()
        self._cache = cache = KnownRoutes(clock)
        self._events = events = ServerEvents(
            logging.getLogger("namesrv_client.callback"),
            on_connected=on_connected,
            on_disconnected=on_disconnected,
            on_ready=on_ready,
            on_servers_changed=on_servers_changed,
        )
        self._session = ServerSession(
            settings,
            clock,
            cache.point,
            protocols=protocols,
            shuffle=shuffle,
            events=events,
            list_error=lambda: self.name_servers_error,
        )
        self._name_servers = NameServerList(
            settings.name_servers,
            clock=clock,
            on_change=self._use_servers,
            logger=logging.getLogger("namesrv_client.connection"),
            refresh_seconds=settings.refresh_seconds,
            is_urgent=lambda: not self._session.is_ready and self._session.failed_calls > 0,
        )
        self._keeper = RouteKeeper(
            settings, clock, self._session, cache, changed=self._changed, random_unit=random_unit
        )
        self._faults = BrokerFaults(settings, clock)
        self._selector = QueueSelector(settings, clock, cache, route=self.route, use=self._keeper.topics.use)
        self._observers = ClientObservers(settings, clock, cache, lambda: self.chosen_server)
        self._lifecycle = ClientLifecycle()

    def __repr__(self) -> str:
        return f"<RouteClient [{self.chosen_server or 'no server'} | {self._cache!r} | {self._keeper!r}]>"

    async def __aenter__(self) -> Self:
        """Read the snapshot and the list of servers, and start without waiting for any server.

        A list that cannot be read within `call_timeout_seconds` is used once it is known. A second start is a
        RuntimeError, and so is one during which another task closes the client.
        """
        self._lifecycle.start()
        self._events.open()
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        await self._observers.start()
        background_coroutines = [
            self._name_servers.run(),
            *self._keeper.background_coroutines(),
            *self._observers.background_coroutines(),
        ]
        if self.settings.fault_tolerance and self.settings.probe == "connect":
            background_coroutines.append(self._faults.probe(self.master_of))
        self._lifecycle.start_tasks(background_coroutines)
        # A hanging name or URL delays the start by no more than this; servers are used once they are known.
        if not await self._name_servers.looked_within(self.settings.call_timeout_seconds):
            logger.warning("name servers from %s: no answer yet", self._name_servers.source)

    async def __aexit__(self, *_: object) -> None:
        """Save the snapshot and close all connections.

        A second call waits for the first. Closing continues when the caller is cancelled.
        """
        self._events.close()
        await self._lifecycle.close(self._close)

    async def _close(self) -> None:
        await self._keeper.close()
        await self._observers.close()
        await self._session.close()

    def _use_servers(self, addresses: tuple[str, ...]) -> None:
        self._session.use(addresses)
        self._keeper.servers_changed()

    def _changed(self, change: RouteChange) -> None:
        self._selector.forget(change.topic)
        self._observers.route_changed(change)

    async def route(self, topic: str, *, max_stale: float | None = None) -> Route:
        """The route of a topic: from memory, or from a server if it is unknown or older than `max_stale` seconds.

        Raises:
            TopicNotFoundError: a server reports that the topic does not exist, and this client never had its route.
            RouteUnavailableError: no server could answer, and no (young enough) route is in memory.
            ValueError: the topic's name is empty, longer than 390 characters, or not valid Unicode.
            RuntimeError: the client is not started.
        """
        self._lifecycle.check_was_started()
        known = self._known(topic, max_stale)
        if known is not None:
            self._keeper.topics.use(topic)
            return known
        if self._lifecycle.is_closed:
            raise RouteUnavailableError(f"topic {topic}: the client is closed")
        began = self._clock.monotonic()
        route = await self._keeper.fetch(topic)
        # A route that was confirmed during this call is accepted even if `max_stale` is shorter than the call.
        if route.confirmed_at < began and self._known(topic, max_stale) is None:
            raise RouteUnavailableError(
                f"topic {topic}: the cached route is {route.age:.0f} s old, and no NameServer has confirmed it"
            )
        return route

    def _known(self, topic: str, max_stale: float | None) -> Route | None:
        """The cached route of a topic, if the route is young enough."""
        known, limit = self._cache.get(topic), self.settings.cache_ttl_seconds if max_stale is None else max_stale
        return known if known is None or limit is None or known.age <= limit else None

    def cached(self, topic: str) -> Route | None:
        """The cached route of a topic, without a request to a server."""
        return self._cache.get(topic)

    def is_in_use(self, topic: str) -> bool:
        """True if the client keeps the route of the topic fresh."""
        return topic in self._keeper.topics

    def forget(self, topic: str) -> None:
        """Stop polling a topic, and drop its route."""
        if self._cache.get(topic) is not None:
            self._observers.route_forgotten()
        self._keeper.forget(topic)
        self._selector.forget(topic)

    async def refresh(self) -> bool:
        """Request all changes of the topics in use now; True if a server has answered, or no topic is in use."""
        self._lifecycle.check_was_started()
        return await self._keeper.refresh()

    @property
    def chosen_server(self) -> str | None:
        """The NameServer that gets requests first."""
        return self._session.chosen

    @property
    def server_errors(self) -> Mapping[str, str]:
        """The last failure of each NameServer, by address."""
        return self._session.errors

    @property
    def name_servers_error(self) -> str | None:
        """The error of the last read of the list of NameServers; None if it succeeded."""
        return self._name_servers.last_error

    def status(self) -> ClientStatus:
        """The state of servers and routes, without a request to a server; any thread may call this."""
        session = self._session
        return ClientStatus(
            client_name=self.settings.client_name,
            is_started=self._lifecycle.is_started,
            is_ready=session.is_ready and not self._lifecycle.is_closed,
            name_servers_error=self.name_servers_error,
            servers=session.statuses(),
            routes=self._cache.statuses(self._keeper.topics),
            watches=session.watches(),
            failovers=session.failovers,
            unanswered=session.failed_calls,
            changes=self._observers.listeners.notified,
        )

    def on_change(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Call `callback` on the loop with every change; it must not block. The returned function ends that.

        Raises TypeError for a coroutine function.
        """
        return self._observers.listeners.add(callback)

    def changes(self) -> RouteChanges:
        """An iterator over all changes from now on; a reader that falls behind by 10,000 changes loses the oldest."""
        return self._observers.listeners.iterator()

    async def publish_info(self, topic: str) -> PublishInfo:
        """The queues to write to; for a new topic, queues on the brokers of the default topic. Raises RouteError."""
        return await self._selector.find(topic)

    def known_publish_info(self, topic: str) -> PublishInfo | None:
        """The queues to write to if they are cached and young enough, without a request to a server."""
        return self._selector.ready(topic)

    async def select_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """The next queue for this task, avoiding the broker of its last failed attempt. Raises RouteError."""
        info = self._selector.ready(topic) or await self.publish_info(topic)
        return self.next_queue(info, id(asyncio.current_task()), last_broker)

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, preferably on an available broker, then on a reachable one, then on any broker."""
        return self._faults.next_queue(info, sender, last_broker)

    def report(self, broker: str, latency_seconds: float, *, failed: bool = False) -> None:
        """Report the result of a send. After a failure the routes of the broker's topics are refreshed."""
        isolated_ms = self._faults.report(broker, latency_seconds, failed=failed)
        self._observers.send_reported(broker, isolated_ms, failed=failed)
        if failed:
            self._suspect(broker)

    def _suspect(self, broker: str) -> None:
        """Refresh the routes of the broker's topics soon, at most once a second."""
        if not self._lifecycle.is_closed:
            self._keeper.suspect(broker)

    def reached(self, broker: str) -> None:
        """Report that the application's own probe has reached the broker."""
        self._faults.reached(broker)

    @property
    def unreachable_brokers(self) -> list[str]:
        """Brokers that a probe should try to reach."""
        return self._faults.unreachable()

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read from. Raises RouteError."""
        return subscribe_queues(topic, (await self.route(topic)).data)

    def broker_of(self, queue: MessageQueue) -> str:
        """The broker group of a queue; for a static topic, the group to which the logical queue is mapped now."""
        known = self._cache.get(queue.topic)
        mappings = None if known is None else known.data.topic_queue_mapping_by_broker
        if mappings and queue.broker_name.startswith(LOGICAL_PREFIX):
            return endpoint(queue, mappings)
        return queue.broker_name

    def master_of(self, broker_name: str) -> str | None:
        """The address of the group's master, to write to; None without a master."""
        master = self.find_broker(broker_name, MASTER_ID, only_this=True)
        return None if master is None else master.address

    def find_broker(self, broker_name: str, broker_id: int, *, only_this: bool = False) -> BrokerAddress | None:
        """A broker to read from: the one with this id, or the next id (ids shift by one after an election).

        Unless `only_this` is set, any other broker of the group will do. None if the known routes have no such broker.
        """
        data = self._cache.broker(broker_name)
        addresses = {} if data is None else data.broker_addrs
        wanted = [broker_id] if broker_id == MASTER_ID else [broker_id, broker_id + 1]
        if not only_this:
            wanted += sorted(addresses)
        return next((BrokerAddress(broker_name, each, addresses[each]) for each in wanted if each in addresses), None)
