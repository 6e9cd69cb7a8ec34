"""Duration of evictions in small and large tables; eviction.py runs this as a process of its own.

Without sockets, over which a millisecond of work drowns in the rest. The tables are the daemon's, with their manager,
its event loop and the caches of encoded answers.
"""

import gc
import itertools
import json
import random
import sys
import time
from typing import Final

from namesrv.encoded_routes import EncodedRoutes
from namesrv.routeinfo.admission import TableLimits
from namesrv.routeinfo.liveness import LivenessClock
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.records import Effect, Registration, RouteOptions
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_runtime import loops
from namesrv_runtime.clock import SystemClock

# of each broker, and nobody else's
TOPICS: Final = 1_000
SMALL_BROKERS: Final = 10
LARGE_BROKERS: Final = 1_000


class _Nameserver:
    """The inside of a daemon, with brokers in it; each has its own connection."""

    def __init__(self, brokers: int) -> None:
        tables, options = RouteTables(), RouteOptions()
        answers = EncodedRoutes(tables, options, lambda _: None, "bench")
        self._answers = answers.json
        self._manager = RouteInfoManager(
            tables,
            LivenessClock(SystemClock().monotonic, 130.0),
            options,
            TableLimits(1, 1_000_000, 1_000_000_000, 1_000_000_000, 1_000_000, 1_000_000, 1_000_000_000),
            sink=_forget,
            is_connected=lambda _: True,
        )
        self._brokers = brokers
        self._connections = itertools.count(1)
        # broker -> its connection
        self._connection_of: dict[int, int] = {}

    async def fill(self) -> None:
        """Register all brokers."""
        for broker in range(self._brokers):
            await self._register(broker)

    def any_broker(self) -> int:
        """One of them, whichever."""
        return random.randrange(self._brokers)

    async def death(self, broker: int) -> float:
        """Cut the connection of a broker, and let it come back: the computing time of the first, in milliseconds."""
        began = time.thread_time()
        await self._manager.connection_closed(self._connection_of[broker])
        took = time.thread_time() - began
        await self._register(broker)
        return took * 1000

    async def _register(self, broker: int) -> None:
        connection_id = self._connection_of[broker] = next(self._connections)
        names = [f"topic-{number:07}" for number in range(broker * TOPICS, (broker + 1) * TOPICS)]
        await self._manager.register(
            Registration(
                cluster_name="DefaultCluster",
                broker_name=f"broker-{broker}",
                broker_id=0,
                broker_addr=f"10.0.0.1:{broker}",
                body=RegisterBrokerBody([TopicConfig(name) for name in names], DataVersion(1)),
                connection_id=connection_id,
                expiry_seconds=120.0,
            )
        )
        # somebody asks for all of them, so that rows hold their answers
        for name in names:
            self._answers.find(name)


def _forget(_: Effect) -> None:
    """Nobody is told."""


async def _deaths(count: int) -> dict[str, list[float]]:
    small, large = _Nameserver(SMALL_BROKERS), _Nameserver(LARGE_BROKERS)
    await small.fill()
    await large.fill()
    found: dict[str, list[float]] = {"small": [], "large": [], "small, any": [], "large, any": []}
    # in turn: the machine drifts
    for _ in range(count):
        # What has just come back lies in the processor's caches, however large the tables are; what any broker left
        # in a million topics does not, and waiting for memory counts, too.
        found["small"].append(await small.death(0))
        found["large"].append(await large.death(0))
        found["small, any"].append(await small.death(small.any_broker()))
        found["large, any"].append(await large.death(large.any_broker()))
    return found


def main() -> int:
    """Print as JSON how long each death took."""
    # as the daemon does when it has started
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    count = int(sys.argv[1])
    print(json.dumps(loops.run(lambda: _deaths(count))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
