"""The queues for messages, and the brokers that are left alone after slow and failed sends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from namesrv_client.queues.topic_queues import MessageQueue, PublishInfo, publish_info
from namesrv_client.routes.cache import RouteCache
from namesrv_client.routes.route import NoQueueError, Route, RouteUnavailableError, TopicNotFoundError
from namesrv_client.settings import ClientSettings
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock, timeout_on

# How long the default topic's queues stand in before the topic itself is asked for again.
_DEFAULT_SECONDS: Final = 1.0
# RocketMQ's tables from 5.1.4 on, and before: (latency from, left alone for), in milliseconds, largest first
_TABLES: Final = {
    "5": ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000)),
    "4": ((15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000)),
}
# the latency that a failure counts as
_ISOLATION_MS: Final = {"5": 10_000, "4": 30_000}
_PROBE_SECONDS: Final = 3.0
_PROBE_TIMEOUT_SECONDS: Final = 0.2


@dataclass(eq=False, repr=False)
class QueueSelector:
    """The queues that can be written to, by topic."""

    settings: ClientSettings
    clock: Clock
    cache: RouteCache
    _: KW_ONLY
    # finds a topic's route, and keeps a topic fresh
    route: Callable[[str], Awaitable[Route]]
    use: Callable[[str], None]

    def __post_init__(self) -> None:
        # by topic, until its route changes
        self._infos: dict[str, PublishInfo] = {}
        # topics that do not exist yet: the default topic's queues, and until when they stand in
        self._defaults: dict[str, tuple[PublishInfo, float]] = {}

    def ready(self, topic: str) -> PublishInfo | None:
        """The queues to write to, if they are known and young enough, without asking anybody."""
        info, ttl = self._infos.get(topic), self.settings.cache_ttl_seconds
        if info is not None and ttl is not None:
            known = self.cache.get(topic)
            return info if known is not None and known.age <= ttl else None
        if info is None and self._defaults:
            info, until = self._defaults.get(topic, (None, 0.0))
            return info if self.clock.monotonic() < until else None
        return info

    async def find(self, topic: str) -> PublishInfo:
        """The queues to write to, those of the default topic if it does not exist yet. Raises RouteError."""
        ready = self.ready(topic)
        if ready is not None:
            return ready
        try:
            found = publish_info(topic, (await self.route(topic)).data)
        except TopicNotFoundError:
            if topic == self.settings.default_topic:
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
        default, most = await self.route(self.settings.default_topic), self.settings.default_topic_queue_nums
        queues = [
            msgspec.structs.replace(row, write_queue_nums=min(most, row.read_queue_nums))
            for row in default.data.queue_datas
        ]
        found = publish_info(topic, TopicRouteData(default.data.broker_datas, queues))
        if not found.count:
            raise NoQueueError(f"topic {topic} does not exist, and {default.topic} has no queue that can be written to")
        # the poll asks about it as well, until a broker has created it
        self.use(topic)
        known, _ = self._defaults.get(topic, (None, 0.0))
        if known is not None and known.runs == found.runs:
            # goes on with the turns that were taken
            found = known
        self._defaults[topic] = (found, self.clock.monotonic() + _DEFAULT_SECONDS)
        return found

    def forget(self, topic: str) -> None:
        """Its route has changed, or nobody uses it any more."""
        self._infos.pop(topic, None)
        self._defaults.pop(topic, None)


class BrokerFaults:
    """Which brokers are left alone after slow and failed sends. Any thread may report."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self.clock = clock
        self._is_tolerant = settings.fault_tolerance
        # without anybody who would find out that a broker is back, its pause has to be enough
        self._is_probed = settings.probe != "off"
        self._table = _TABLES[settings.fault_table]
        self._isolation_ms = _ISOLATION_MS[settings.fault_table]
        # broker -> until when (monotonic) it is left alone
        self._isolated: dict[str, float] = {}
        # brokers that nobody has reached since a send failed, in that order
        self._unreachable: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<BrokerFaults [{len(self._isolated)} isolated | {len(self._unreachable)} unreachable]>"

    def report(self, broker: str, latency_seconds: float, *, failed: bool) -> int:
        """Take in how a send went; for how many milliseconds the broker is left alone for it.

        A failure isolates, slowness does by the table, a quick success ends both. Nothing does without fault tolerance.
        """
        if not self._is_tolerant:
            return 0
        latency_ms = self._isolation_ms if failed else latency_seconds * 1000
        pause = next((pause for threshold, pause in self._table if latency_ms >= threshold), 0)
        if pause:
            # an isolation that runs is not made shorter by a slow answer, only by a good one
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
        """Whether it is to be used."""
        return self.is_reachable(broker) and self.clock.monotonic() >= self._isolated.get(broker, 0.0)

    def is_reachable(self, broker: str) -> bool:
        """Whether it could be reached the last time somebody tried."""
        return broker not in self._unreachable

    def next_queue(self, info: PublishInfo, sender: int, last_broker: str | None = None) -> MessageQueue:
        """The sender's next queue: of an available broker, or else a reachable one, or else any."""
        if not self._is_tolerant:
            return info.select(sender, last_broker)
        return (
            info.select_where(sender, lambda name: name != last_broker and self.is_available(name))
            or info.select_where(sender, lambda name: name != last_broker and self.is_reachable(name))
            or info.select(sender)
        )

    def unreachable(self) -> list[str]:
        """Brokers that a probe should look at."""
        return list(self._unreachable)

    def reached(self, broker: str) -> None:
        """A probe got through."""
        self._unreachable.pop(broker, None)

    async def probe(self, master_of: Callable[[str], str | None]) -> None:
        """Try every 3 s to reach the brokers that could not be reached, until cancelled."""
        while True:
            await self.clock.sleep(_PROBE_SECONDS)
            await asyncio.gather(*(self._probe(broker, master_of(broker)) for broker in self.unreachable()))

    async def _probe(self, broker: str, address: str | None) -> None:
        if address is None:
            # nothing can be sent to it anyway
            self._isolated.pop(broker, None)
            self.reached(broker)
        elif await connects(address, self.clock):
            self.reached(broker)


async def connects(address: str, clock: Clock) -> bool:
    """Whether somebody takes a connection there in time."""
    try:
        host, port = parse_address(address)
        async with timeout_on(clock, _PROBE_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError):
        # a timeout is an OSError; a name that is none a UnicodeError, which is a ValueError
        return False
    writer.transport.abort()
    return True
