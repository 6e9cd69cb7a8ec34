"""The next queue for a message, and which brokers are left alone."""

from collections.abc import Awaitable, Callable
from typing import Final

from namesrv_client.errors import NoQueueError, RouteUnavailableError, TopicNotFoundError
from namesrv_client.queues.faults import FaultStrategy
from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo, publish_info
from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.route import Route
from namesrv_client.settings import ClientSettings
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_runtime.clock import Clock

# How long the default topic's queues stand in before the topic itself is asked for again.
_DEFAULT_SECONDS: Final = 1.0


class QueueSelector:
    """The queues that can be written to, by topic, and which brokers are left alone."""

    def __init__(self, settings: ClientSettings, clock: Clock, cache: RouteCache) -> None:
        self._settings = settings
        self._clock = clock
        self._cache = cache
        # by topic, until its route changes
        self._infos: dict[str, PublishInfo] = {}
        # topics that do not exist yet: the default topic's queues, and until when they stand in
        self._defaults: dict[str, tuple[PublishInfo, float]] = {}
        self.faults: Final = FaultStrategy(settings.fault_table)
        self._is_fault_tolerant = settings.fault_tolerance
        self._ttl = settings.cache_ttl_seconds

    def __repr__(self) -> str:
        return f"<QueueSelector [{len(self._infos)} topics | {len(self._defaults)} by default | {self.faults!r}]>"

    # -- the queues ---------------------------------------------------------------------------------------------------

    def ready(self, topic: str) -> PublishInfo | None:
        """The queues to write to, if they are known and young enough, without asking anybody."""
        info = self._infos.get(topic)
        if info is None:
            return self._default(topic) if self._defaults else None
        if self._ttl is not None and self._cache.age(topic) > self._ttl:
            return None
        return info

    def _default(self, topic: str) -> PublishInfo | None:
        info, until = self._defaults.get(topic, (None, 0.0))
        return info if self._clock.monotonic() < until else None

    async def find(
        self, topic: str, route: Callable[[str], Awaitable[Route]], use: Callable[[str], None]
    ) -> PublishInfo:
        """The queues to write to. A topic that does not exist yet gets those of the default topic, as in RocketMQ.

        Raises:
            TopicNotFoundError: neither the topic nor the default topic exists.
            NoQueueError: the topic exists, and no queue of it can be written to.
            RouteUnavailableError: nobody could tell.
        """
        ready = self.ready(topic)
        if ready is not None:
            return ready
        try:
            found = publish_info(topic, (await route(topic)).data)
        except TopicNotFoundError:
            if topic == self._settings.default_topic:
                raise
            return await self._stand_in(topic, route, use)
        except RouteUnavailableError:
            if topic not in self._defaults:
                raise
            # it did not exist a moment ago, and nobody can tell whether it does now
            return self._defaults[topic][0]
        if not found.count:
            raise NoQueueError(f"topic {topic} has no queue that can be written to")
        self._defaults.pop(topic, None)
        return self._infos.setdefault(topic, found)

    async def _stand_in(
        self, topic: str, route: Callable[[str], Awaitable[Route]], use: Callable[[str], None]
    ) -> PublishInfo:
        default = await route(self._settings.default_topic)
        found = publish_info(topic, clamped(default.data, self._settings.default_topic_queue_nums))
        if not found.count:
            raise NoQueueError(f"topic {topic} does not exist, and {default.topic} has no queue that can be written to")
        # the poll asks about it as well, until a broker has created it
        use(topic)
        known, _ = self._defaults.get(topic, (None, 0.0))
        if known is not None and known.runs == found.runs:
            # goes on with the turns that were taken
            found = known
        self._defaults[topic] = (found, self._clock.monotonic() + _DEFAULT_SECONDS)
        return found

    def forget(self, topic: str) -> None:
        """Its route has changed, or nobody uses it any more."""
        self._infos.pop(topic, None)
        self._defaults.pop(topic, None)

    # -- one of them --------------------------------------------------------------------------------------------------

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue: of an available broker, or else a reachable one, or else any."""
        if not self._is_fault_tolerant:
            return info.select(sender, last_broker)
        faults, now = self.faults, self._clock.monotonic()
        return (
            info.select_where(sender, lambda name: name != last_broker and faults.is_available(name, now))
            or info.select_where(sender, lambda name: name != last_broker and faults.is_reachable(name))
            or info.select(sender)
        )

    def report(self, broker: str, latency_seconds: float, *, failed: bool) -> int:
        """How a send went; for how many milliseconds the broker is left alone for it, never without fault tolerance."""
        if not self._is_fault_tolerant:
            return 0
        # without anybody who would find out that it is back, its pause has to be enough
        is_reachable = not failed or self._settings.probe == "off"
        return self.faults.report(
            broker, latency_seconds * 1000, self._clock.monotonic(), failed=failed, is_reachable=is_reachable
        )


def clamped(data: TopicRouteData, queue_nums: int) -> TopicRouteData:
    """The default topic's route as that of a topic that a broker will create: a few queues to read and write."""
    queues = [
        QueueData(
            queues.broker_name,
            min(queue_nums, queues.read_queue_nums),
            min(queue_nums, queues.read_queue_nums),
            queues.perm,
            queues.topic_sys_flag,
        )
        for queues in data.queue_datas
    ]
    return TopicRouteData(data.broker_datas, queues)
