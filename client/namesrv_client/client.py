"""How do producers and consumers know where their queues are?"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from namesrv_client.errors import NoQueueError, RouteUnavailableError, TopicNotFoundError
from namesrv_client.fault_strategy import FaultStrategy
from namesrv_client.publish_info import MessageQueue, PublishInfo, publish_info, subscribe_queues
from namesrv_client.route import Route, RouteChange, Source
from namesrv_client.route_cache import RouteCache
from namesrv_client.route_snapshot import RouteSnapshot, RouteSnapshotError
from namesrv_client.session import Server, ServerSession
from namesrv_client.settings import ClientSettings
from namesrv_remoting.aio.clock import Clock, SystemClock
from namesrv_remoting.aio.name_servers import NameServerList
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.errors import RemotingError

logger: Final = logging.getLogger(__name__)

# Polls come this much earlier or later, so that clients that started together part.
_JITTER: Final = 0.1
_WATCH_SECONDS: Final = 25.0
# a watch says nothing while nothing changes: this is how a dead connection under it is noticed
_PING_SECONDS: Final = 3.0
_WATCH_RETRY_SECONDS: Final = 1.0
_SNAPSHOT_SECONDS: Final = 5.0
# after failed sends, the routes concerned are asked for at most this often
_REFRESH_SECONDS: Final = 1.0
_CHANGES_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One instance of a broker group."""

    broker_name: str
    broker_id: int
    address: str

    @property
    def is_slave(self) -> bool:
        """Whether it only replicates."""
        return self.broker_id != MASTER_ID


class RouteClient:
    """Finds routes and keeps them fresh, as an async context manager.

    What is known is served from memory, whatever happens to the servers. All methods belong to the loop that entered
    it; see SyncRouteClient for threads.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock | None = None,
        random_unit: Callable[[], float] = random.random,
        shuffle: Callable[[list[str]], None] = random.shuffle,
    ) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._random_unit = random_unit
        self._cache = RouteCache(self._clock)
        self._snapshot = None if settings.snapshot_file is None else RouteSnapshot(settings.snapshot_file, self._clock)
        self._session = ServerSession(settings, self._clock, on_lost=self._lost, shuffle=shuffle)
        self._name_servers = NameServerList(
            settings.name_servers,
            clock=self._clock,
            on_change=self._session.use,
            refresh_seconds=settings.refresh_seconds,
        )
        # topics that are polled: all that anybody ever asked for
        self._in_use: set[str] = set()
        # topic -> the question that is under way for it
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._publish: dict[str, PublishInfo] = {}
        self._faults = FaultStrategy(settings.fault_table)
        self._callbacks: list[Callable[[RouteChange], None]] = []
        self._iterators: set[asyncio.Queue[RouteChange]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._watch_again = asyncio.Event()
        self._refresh_wanted: set[str] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._unsaved = False

    def __repr__(self) -> str:
        return f"<RouteClient [{self._session.chosen or 'no server'} | {self._cache!r} | {len(self._in_use)} in use]>"

    # -- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start: read the snapshot and the list of servers; no server is waited for."""
        if self._snapshot is not None:
            try:
                self._cache.restore(await asyncio.to_thread(self._snapshot.load))
            except RouteSnapshotError as error:
                logger.warning("route snapshot not used: %s", error)
        await self._name_servers.refresh()
        works = [self._name_servers.run(), self._poll()]
        if self.settings.watch:
            works += [self._watch(), self._ping()]
        if self._snapshot is not None:
            works.append(self._save())
        self._tasks = [asyncio.create_task(work) for work in works]
        for task in self._tasks:
            task.add_done_callback(_report_bug)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop: save the snapshot, close all connections."""
        ending = [*self._tasks, *self._asking.values()]
        if self._refreshing is not None:
            ending.append(self._refreshing)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        await self._save_once()
        await self._session.close()

    # -- routes -------------------------------------------------------------------------------------------------------

    async def route(self, topic: str, *, max_stale: float | None = None) -> Route:
        """The route of a topic: from memory, or from a server when it is not known or older than `max_stale` seconds.

        Raises:
            TopicNotFoundError: a server positively knows no such topic, and this client never knew one.
            RouteUnavailableError: nobody could tell, and nothing (young enough) is known.
        """
        known = self._cache.get(topic)
        limit = self.settings.cache_ttl_seconds if max_stale is None else max_stale
        if known is not None and (limit is None or known.age <= limit):
            self._in_use.add(topic)
            return known
        return await self._asked(topic)

    def cached(self, topic: str) -> Route | None:
        """What is known of a topic, without asking anybody."""
        return self._cache.get(topic)

    def forget(self, topic: str) -> None:
        """Do not poll a topic any more, and drop what is known of it."""
        self._in_use.discard(topic)
        self._cache.forget(topic)
        self._publish.pop(topic, None)

    @property
    def chosen_server(self) -> str | None:
        """The NameServer that is asked first."""
        return self._session.chosen

    @property
    def server_errors(self) -> Mapping[str, str]:
        """Why each NameServer failed the last time, by address."""
        return dict(self._session.errors)

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, for the child of a fork to close."""
        return self._session.socket_descriptors()

    async def _asked(self, topic: str) -> Route:
        """One question for all who want the same topic."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.ensure_future(self._ask(topic))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        # whoever gives up must not take the answer from the others
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> Route:
        server, data = await self._session.route(topic)
        self._answered(server, topic, data, "pull")
        known = self._cache.get(topic)
        if known is None:
            if data is None and not self._is_warm(server):
                raise RouteUnavailableError(
                    f"topic {topic}: {server.address} started a moment ago and may not know it yet"
                )
            raise TopicNotFoundError(f"topic {topic} does not exist, says {server.address}")
        if topic not in self._in_use:
            self._in_use.add(topic)
            self._watch_again.set()
        return known

    def _is_warm(self, server: Server) -> bool:
        return self._clock.monotonic() >= server.warm_at

    def _answered(self, server: Server, topic: str, data: TopicRouteData | None, source: Source) -> None:
        change = self._cache.answered(topic, data, source, is_warm=self._is_warm(server))
        if change is not None:
            self._changed(change)

    def _changed(self, change: RouteChange) -> None:
        self._publish.pop(change.topic, None)
        self._unsaved = True
        for callback in self._callbacks:
            try:
                callback(change)
            except Exception:
                logger.exception("callback failed on the change of topic %s", change.topic)
        for queue in self._iterators:
            if queue.full():
                # somebody who does not look: the oldest is the least worth
                queue.get_nowait()
            queue.put_nowait(change)

    # -- changes ------------------------------------------------------------------------------------------------------

    def on_change(self, callback: Callable[[RouteChange], None]) -> Callable[[], None]:
        """Have every change told; call what is returned to end that. Runs on the loop and must not block."""
        self._callbacks.append(callback)

        def end() -> None:
            with suppress(ValueError):
                self._callbacks.remove(callback)

        return end

    async def changes(self) -> AsyncIterator[RouteChange]:
        """Every change from now on; who does not keep up loses the oldest of 10,000."""
        queue: asyncio.Queue[RouteChange] = asyncio.Queue(_CHANGES_KEPT)
        self._iterators.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._iterators.discard(queue)

    # -- producers ----------------------------------------------------------------------------------------------------

    async def publish_info(self, topic: str) -> PublishInfo:
        """The queues to write to. A topic that does not exist yet gets those of the default topic, as in RocketMQ.

        Raises:
            TopicNotFoundError: neither the topic nor the default topic exists.
            NoQueueError: the topic exists, and no queue of it can be written to.
            RouteUnavailableError: nobody could tell.
        """
        known = self._publish.get(topic)
        if known is not None:
            return known
        try:
            route = await self.route(topic)
        except TopicNotFoundError:
            if topic == self.settings.default_topic:
                raise
            route = self._as_default(topic, await self.route(self.settings.default_topic))
        found = publish_info(topic, route.data)
        if not found.queues:
            raise NoQueueError(f"topic {topic} has no queue that can be written to")
        if route.source != "default":
            self._publish[topic] = found
        return found

    def _as_default(self, topic: str, route: Route) -> Route:
        """The default topic's route with its queues clamped: what a broker will create the topic with."""
        limit = self.settings.default_topic_queue_nums
        queues = [
            QueueData(
                data.broker_name,
                min(limit, data.read_queue_nums),
                min(limit, data.read_queue_nums),
                data.perm,
                data.topic_sys_flag,
            )
            for data in route.data.queue_datas
        ]
        # asked about again, until a broker has created it
        self._in_use.add(topic)
        data = TopicRouteData(route.data.broker_datas, queues)
        return Route(topic, data, "default", route.confirmed_at, None, self._clock)

    def known_publish_info(self, topic: str) -> PublishInfo | None:
        """The queues to write to, if they are known, without asking anybody."""
        return self._publish.get(topic)

    async def select_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """The next queue for a message of this task, avoiding the broker that the last attempt failed on.

        Raises:
            RouteError: as `publish_info`.
        """
        info = self._publish.get(topic) or await self.publish_info(topic)
        return self.next_queue(info, id(asyncio.current_task()), last_broker)

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue: of an available broker, or else a reachable one, or else any."""
        if not self.settings.fault_tolerance:
            return info.select(sender, last_broker)
        faults, now = self._faults, self._clock.monotonic()
        return (
            info.select_where(sender, lambda name: name != last_broker and faults.is_available(name, now))
            or info.select_where(sender, lambda name: name != last_broker and faults.is_reachable(name))
            or info.select(sender)
        )

    def report(self, broker: str, latency_seconds: float, *, failed: bool = False) -> None:
        """Say how a send went. After a failure the routes of the broker's topics are asked for, once a second at most."""
        self._faults.report(
            broker, latency_seconds * 1000, self._clock.monotonic(), failed=failed, is_reachable=not failed
        )
        if failed:
            self._refresh(topic for topic in self._cache.topics_of_broker(broker) if topic in self._in_use)

    def reached(self, broker: str) -> None:
        """A probe of the application's own got through to the broker."""
        self._faults.reached(broker)

    @property
    def unreachable_brokers(self) -> list[str]:
        """Brokers that a probe should look at."""
        return self._faults.unreachable()

    # -- consumers and addresses --------------------------------------------------------------------------------------

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read. Raises RouteError as `route`."""
        return subscribe_queues(topic, (await self.route(topic)).data)

    def master_of(self, broker_name: str) -> str | None:
        """Where to write: the master's address, never a slave's."""
        found = self.find_broker(broker_name, MASTER_ID, only_this=True)
        return None if found is None else found.address

    def find_broker(self, broker_name: str, broker_id: int, *, only_this: bool) -> BrokerAddress | None:
        """Where to read: that id, or the next one (ids shift by one after an election), or, unless `only_this`, any."""
        data = self._cache.broker(broker_name)
        if data is None:
            return None
        for wanted in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (broker_id,):
            if wanted in data.broker_addrs:
                return BrokerAddress(broker_name, wanted, data.broker_addrs[wanted])
        if only_this or not data.broker_addrs:
            return None
        return _any(data)

    # -- keeping fresh ------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        # full jitter on the first: a thousand clients that start together do not ask together
        await self._clock.sleep(self.settings.poll_seconds * self._random_unit())
        while True:
            await self.refresh()
            spread = 1 + _JITTER * (2 * self._random_unit() - 1)
            await self._clock.sleep(self.settings.poll_seconds * spread)

    async def refresh(self) -> bool:
        """Ask for what changed of all topics in use, now; whether a server answered."""
        topics = sorted(self._in_use)
        if not topics:
            return True
        try:
            server, routes = await self._session.changes(topics)
        except RemotingError as error:
            logger.info("routes not refreshed: %s", error)
            return False
        self._take(server, topics, routes, "pull")
        return True

    def _take(
        self, server: Server, topics: Iterable[str], routes: Mapping[str, TopicRouteData | None], source: Source
    ) -> None:
        for topic, data in routes.items():
            self._answered(server, topic, data, source)
        if server.is_native and self._is_warm(server):
            # what a native server leaves out has not changed
            self._cache.confirmed(topic for topic in topics if topic not in routes)

    async def _watch(self) -> None:
        while True:
            self._watch_again.clear()
            topics = sorted(self._in_use)
            if not topics:
                await self._watch_again.wait()
                continue
            held = asyncio.ensure_future(self._session.watch(topics, _WATCH_SECONDS))
            again = asyncio.ensure_future(self._watch_again.wait())
            try:
                # another topic in use: the watch has to know of it
                await asyncio.wait((held, again), return_when=asyncio.FIRST_COMPLETED)
                if not held.done():
                    continue
                server, routes = held.result()
            except RemotingError as error:
                logger.info("watch ended: %s", error)
                await self._clock.sleep(_WATCH_RETRY_SECONDS * self._random_unit())
            else:
                self._take(server, topics, routes, "watch")
            finally:
                held.cancel()
                again.cancel()

    async def _ping(self) -> None:
        while True:
            await self._clock.sleep(_PING_SECONDS)
            if self._in_use:
                try:
                    await self._session.ping()
                except RemotingError as error:
                    logger.info("server lost: %s", error)
                    self._watch_again.set()

    def _lost(self, address: str) -> None:
        logger.info("connection to %s lost", address)

    def _refresh(self, topics: Iterable[str]) -> None:
        self._refresh_wanted.update(topics)
        if self._refresh_wanted and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.ensure_future(self._refresh_soon())

    async def _refresh_soon(self) -> None:
        while self._refresh_wanted:
            topics, self._refresh_wanted = self._refresh_wanted, set()
            for topic in sorted(topics):
                with suppress(RemotingError):
                    await self._asked(topic)
            await self._clock.sleep(_REFRESH_SECONDS)

    # -- the snapshot -------------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        while True:
            await self._clock.sleep(_SNAPSHOT_SECONDS)
            await self._save_once()

    async def _save_once(self) -> None:
        if self._snapshot is None or not self._unsaved:
            return
        self._unsaved = False
        try:
            await asyncio.to_thread(self._snapshot.save, self._cache.all())
        except OSError as error:
            self._unsaved = True
            logger.warning("route snapshot not written: %s", error)


def _any(data: BrokerData) -> BrokerAddress:
    broker_id = min(data.broker_addrs)
    return BrokerAddress(data.broker_name, broker_id, data.broker_addrs[broker_id])


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical("route client task ended by a bug", exc_info=task.exception())
