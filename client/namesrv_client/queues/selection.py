"""The next queue for a message: of its topic, or of the default topic while there is no such topic."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from namesrv_client.queues.faults import BrokerFaults
from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo, publish_info
from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.route import NoQueueError, Route, RouteUnavailableError, TopicNotFoundError
from namesrv_client.settings import ClientSettings
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_runtime.clock import Clock

# How long the default topic's queues stand in before the topic itself is asked for again.
_DEFAULT_SECONDS: Final = 1.0


class QueueSelector:
    """The queues that can be written to, by topic."""

    def __init__(  # noqa: PLR0913 - where it looks
        self,
        settings: ClientSettings,
        clock: Clock,
        cache: RouteCache,
        faults: BrokerFaults,
        *,
        route: Callable[[str], Awaitable[Route]],
        use: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._cache = cache
        self._faults = faults
        # finds a topic's route, and keeps a topic fresh
        self._route = route
        self._use = use
        # by topic, until its route changes
        self._infos: dict[str, PublishInfo] = {}
        # topics that do not exist yet: the default topic's queues, and until when they stand in
        self._defaults: dict[str, tuple[PublishInfo, float]] = {}
        self._ttl = settings.cache_ttl_seconds

    def __repr__(self) -> str:
        return f"<QueueSelector [{len(self._infos)} topics | {len(self._defaults)} by default]>"

    def ready(self, topic: str) -> PublishInfo | None:
        """The queues to write to, if they are known and young enough, without asking anybody."""
        info = self._infos.get(topic)
        if info is not None:
            return info if self._ttl is None or self._cache.age(topic) <= self._ttl else None
        if not self._defaults:
            return None
        info, until = self._defaults.get(topic, (None, 0.0))
        return info if self._clock.monotonic() < until else None

    async def find(self, topic: str) -> PublishInfo:
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
            found = publish_info(topic, (await self._route(topic)).data)
        except TopicNotFoundError:
            if topic == self._settings.default_topic:
                raise
            return await self._stand_in(topic)
        except RouteUnavailableError:
            if topic not in self._defaults:
                raise
            # it did not exist a moment ago, and nobody can tell whether it does now
            return self._defaults[topic][0]
        if not found.count:
            raise NoQueueError(f"topic {topic} has no queue that can be written to")
        self._defaults.pop(topic, None)
        return self._infos.setdefault(topic, found)

    async def _stand_in(self, topic: str) -> PublishInfo:
        """A few queues on each of the default topic's brokers, as a broker will create them."""
        default = await self._route(self._settings.default_topic)
        counts = [min(self._settings.default_topic_queue_nums, row.read_queue_nums) for row in default.data.queue_datas]
        queues = [
            msgspec.structs.replace(row, read_queue_nums=count, write_queue_nums=count)
            for row, count in zip(default.data.queue_datas, counts, strict=True)
        ]
        found = publish_info(topic, TopicRouteData(default.data.broker_datas, queues))
        if not found.count:
            raise NoQueueError(f"topic {topic} does not exist, and {default.topic} has no queue that can be written to")
        # the poll asks about it as well, until a broker has created it
        self._use(topic)
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

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue: of an available broker, or else a reachable one, or else any."""
        faults = self._faults
        if not faults.is_tolerant:
            return info.select(sender, last_broker)
        return (
            info.select_where(sender, lambda name: name != last_broker and faults.is_available(name))
            or info.select_where(sender, lambda name: name != last_broker and faults.is_reachable(name))
            or info.select(sender)
        )
