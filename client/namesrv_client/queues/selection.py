"""Selection of queues to send to, and isolation of brokers after slow and failed sends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo, publish_info
from namesrv_client.routes.cache import KnownRoutes
from namesrv_client.routes.route import NoQueueError, Route, RouteUnavailableError, TopicNotFoundError
from namesrv_client.settings import ClientSettings
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.threads import thread_starts

# How long queues of the default topic's brokers are used before the topic itself is requested again.
_DEFAULT_SECONDS: Final = 1.0
# RocketMQ's tables since 5.1.4, and before: (minimum latency, isolation), in milliseconds, largest first
_TABLES: Final = {
    "5": ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000)),
    "4": ((15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000)),
}
# the latency in milliseconds as which a failed send counts
_FAILURE_LATENCY_MS: Final = {"5": 10_000, "4": 30_000}
_PROBE_SECONDS: Final = 3.0
_PROBE_TIMEOUT_SECONDS: Final = 0.2


@dataclass(eq=False, repr=False)
class QueueSelector:
    """Finds the queues that can be written to, by topic."""

    settings: ClientSettings
    clock: Clock
    cache: KnownRoutes
    _: KW_ONLY
    # functions that return a topic's route, and mark a topic as used
    route: Callable[[str], Awaitable[Route]]
    use: Callable[[str], None]

    def __post_init__(self) -> None:
        # topic -> its queues, until its route changes
        self._infos: dict[str, PublishInfo] = {}
        # topic that does not exist yet -> queues on the default topic's brokers, and the time until which they are used
        self._defaults: dict[str, tuple[PublishInfo, float]] = {}

    def ready(self, topic: str) -> PublishInfo | None:
        """The queues to write to if they are cached and young enough, without a request to a server."""
        info, ttl = self._infos.get(topic), self.settings.cache_ttl_seconds
        if info is not None and ttl is not None:
            known = self.cache.get(topic)
            return info if known is not None and known.age <= ttl else None
        if info is None and self._defaults:
            info, until = self._defaults.get(topic, (None, 0.0))
            return info if self.clock.monotonic() < until else None
        return info

    async def find(self, topic: str) -> PublishInfo:
        """The queues to write to; for a missing topic, queues on the default topic's brokers. Raises RouteError."""
        ready = self.ready(topic)
        if ready is not None:
            return ready
        try:
            route = await self.route(topic)
        except TopicNotFoundError:
            if topic == self.settings.default_topic:
                raise
            return await self._on_default_brokers(topic)
        except RouteUnavailableError:
            if topic not in self._defaults:
                raise
            # The topic did not exist a moment ago, and no server can answer whether it exists now.
            return self._defaults[topic][0]
        # The route may have changed, or the topic may be forgotten, since the response arrived.
        known = self.cache.get(topic)
        info = publish_info(topic, (known or route).data)
        if not info.count:
            raise NoQueueError(f"topic {topic} has no queue that can be written to")
        self._defaults.pop(topic, None)
        return info if known is None else self._infos.setdefault(topic, info)

    async def _on_default_brokers(self, topic: str) -> PublishInfo:
        """Queues on each broker of the default topic, as the broker will create them for the first message."""
        try:
            default = await self.route(self.settings.default_topic)
        except TopicNotFoundError as error:
            reason = f"topic {topic} does not exist, and the default topic gives no queues: {error}"
            raise TopicNotFoundError(reason) from error
        most = self.settings.default_topic_queue_nums
        queues = [
            msgspec.structs.replace(row, write_queue_nums=min(most, row.read_queue_nums))
            for row in default.data.queue_datas
        ]
        info = publish_info(topic, TopicRouteData(default.data.broker_datas, queues))
        if not info.count:
            raise NoQueueError(f"topic {topic} does not exist, and {default.topic} has no queue that can be written to")
        # The topic is polled from now on, to notice when a broker creates it.
        self.use(topic)
        known, _ = self._defaults.get(topic, (None, 0.0))
        if known is not None and known.ranges == info.ranges:
            # The old object is kept, because it knows the next queue of each sender.
            info = known
        self._defaults[topic] = (info, self.clock.monotonic() + _DEFAULT_SECONDS)
        return info

    def forget(self, topic: str) -> None:
        """Drop the queues of a topic, after its route has changed or the topic is not used any more."""
        self._infos.pop(topic, None)
        self._defaults.pop(topic, None)


class BrokerFaults:
    """Isolates brokers after slow and failed sends. Any thread may report."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self.clock = clock
        self._is_tolerant = settings.fault_tolerance
        # False if no probe would notice that a broker is reachable again: then only its isolation time counts
        self._is_probed = settings.probe != "off"
        self._table = _TABLES[settings.fault_table]
        self._failure_latency_ms = _FAILURE_LATENCY_MS[settings.fault_table]
        # broker -> end of its isolation (monotonic)
        self._isolated: dict[str, float] = {}
        # brokers that no probe or send has reached since a send failed, in the order of the failures
        self._unreachable: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<BrokerFaults [{len(self._isolated)} isolated | {len(self._unreachable)} unreachable]>"

    def report(self, broker: str, latency_seconds: float, *, failed: bool) -> int:
        """Note the result of a send; return for how many milliseconds the broker is isolated.

        A failure isolates the broker, a slow send isolates it as the table says, a quick success ends the isolation.
        Without fault tolerance no broker is isolated.
        """
        if not self._is_tolerant:
            return 0
        latency_ms = self._failure_latency_ms if failed else latency_seconds * 1000
        pause = next((pause for threshold, pause in self._table if latency_ms >= threshold), 0)
        if pause:
            # A slow send never shortens an isolation; only a quick one ends it.
            until = self.clock.monotonic() + pause / 1000
            self._isolated[broker] = max(self._isolated.get(broker, until), until)
        else:
            self._isolated.pop(broker, None)
        if failed and self._is_probed:
            self._unreachable[broker] = None
        else:
            self.reached(broker)
        return pause

    def is_available(self, broker: str) -> bool:
        """True if the broker is reachable and not isolated."""
        return self.is_reachable(broker) and self.clock.monotonic() >= self._isolated.get(broker, 0.0)

    def is_reachable(self, broker: str) -> bool:
        """True if the last probe or send reached the broker."""
        return broker not in self._unreachable

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue, preferably on an available broker, then on a reachable one, then on any broker."""
        if not self._is_tolerant:
            return info.select(sender, last_broker)
        return (
            info.select_where(sender, lambda name: name != last_broker and self.is_available(name))
            or info.select_where(sender, lambda name: name != last_broker and self.is_reachable(name))
            or info.select(sender)
        )

    def unreachable(self) -> list[str]:
        """Brokers that a probe should try to reach."""
        return list(self._unreachable)

    def reached(self, broker: str) -> None:
        """Note that a probe has reached the broker."""
        self._unreachable.pop(broker, None)

    async def probe(self, master_of: Callable[[str], str | None]) -> None:
        """Try to reach the unreachable brokers every 3 s, until cancelled."""
        while True:
            await self.clock.sleep(_PROBE_SECONDS)
            await asyncio.gather(*(self._probe(broker, master_of(broker)) for broker in self.unreachable()))

    async def _probe(self, broker: str, address: str | None) -> None:
        if address is None:
            # Without a master, no message can be sent to the group anyway.
            self._isolated.pop(broker, None)
            self.reached(broker)
        elif await connects(address, self.clock):
            self.reached(broker)


async def connects(address: str, clock: Clock) -> bool:
    """True if a connection to the address succeeds in time."""
    try:
        host, port = parse_address(address)
        with thread_starts():
            async with timeout_on(clock, _PROBE_TIMEOUT_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError):
        # A timeout is an OSError, and so is the lack of a thread to resolve a host name; an invalid host name is a
        # UnicodeError, which is a ValueError.
        return False
    writer.transport.abort()
    return True
