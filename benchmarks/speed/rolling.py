"""A rolling restart of three servers under 200 clients that pull ten times a second."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most, none_of
from benchmarks.harness.fleet import Fleet, agent, entered, registered
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WAITING
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import RemotingError
from namesrv_runtime import loops
from namesrv_runtime.clock import SystemClock

_SERVERS: Final = 3
_BROKERS: Final = 4
_CLIENTS: Final = 200
_PULL_SECONDS: Final = 0.1
_TOPIC: Final = "orders"
# the defaults
_FLAGS: Final = ("--drain-seconds", "5", *WAITING)
# shorter than the default of 30 s, so that brokers return to a restarted server at once
_HEARTBEAT_SECONDS: Final = 1.0
# pause before the first server is stopped, and after each restart
_CALM_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 30.0


def measure(bench: Bench) -> list[Figure]:
    """A rolling restart of three servers under 200 clients that pull ten times a second."""
    # Measured once, not in rounds: it takes half a minute.
    bench.progress(f"{_CLIENTS} clients on {_SERVERS} servers that are restarted")
    return figures(restarted(bench))


@dataclass(slots=True)
class Seen:
    """Counts of all clients together."""

    pulls: int = 0
    # pulls that were repeated at another server, and those that failed there as well
    repeated: int = 0
    failed: int = 0
    # pulls whose route lacked a broker
    incomplete: int = 0
    # second on the monotonic clock -> number of clients that connected in it
    connected: Counter[int] = field(default_factory=Counter)


def restarted(bench: Bench, before: Mapping[str, str] | None = None, after: Mapping[str, str] | None = None) -> Seen:
    """Pulls of clients while servers are restarted one by one; they start with `before` and restart with `after`."""
    # Older versions have no shares of addresses, and these clients are few.
    with Fleet(bench, *_FLAGS, count=_SERVERS, environ=before, shares=()) as fleet:
        return loops.run(lambda: _measured(fleet, after))


def figures(seen: Seen) -> list[Figure]:
    """The figures of all pulls. Raises BenchError if no client pulled."""
    if not seen.pulls:
        raise BenchError("rolling: no client pulled")
    busiest = max(seen.connected.values(), default=0) / _CLIENTS
    again = f"{seen.pulls:,} pulls, {seen.repeated} repeated at another server"
    moved = f"{sum(seen.connected.values())} connected in all"
    what = "clients that connect in the busiest second"
    return [
        none_of("rolling.failed", "pulls that failed", seen.failed, again),
        none_of("rolling.incomplete", "pulls that lacked a broker", seen.incomplete),
        Figure("rolling.moved", what, "times", (busiest,), at_most(0.2), moved),
    ]


class _Client:
    """A client that, like Apache's Java client, has one connection, and uses the next server when it ends."""

    def __init__(self, addresses: Sequence[str], seen: Seen) -> None:
        self._addresses = itertools.cycle(random.sample(addresses, len(addresses)))
        self._seen = seen
        self._remoting: RemotingClient | None = None

    async def run(self, ended: asyncio.Event) -> None:
        """Pull until `ended`; a lost or refused request is sent once more."""
        await asyncio.sleep(random.uniform(0, _PULL_SECONDS))
        while not ended.is_set():
            self._seen.pulls += 1
            try:
                self._seen.incomplete += await self._pulled_twice() < _BROKERS
            except RemotingError:
                self._seen.failed += 1
            await asyncio.sleep(_PULL_SECONDS)
        await self._disconnect()

    async def _pulled_twice(self) -> int:
        try:
            return await self._pulled()
        except RemotingError:
            self._seen.repeated += 1
            return await self._pulled()

    async def _pulled(self) -> int:
        """Pull the route and return its number of brokers."""
        # A connection that the server has closed in the meantime is not used.
        if self._remoting is None or not self._remoting.connected:
            await self._disconnect()
            self._seen.connected[int(time.monotonic())] += 1
            self._remoting = RemotingClient(next(self._addresses), clock=SystemClock())
        fields = {"topic": _TOPIC}
        try:
            response = await self._remoting.invoke(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout_seconds=_TIMEOUT_SECONDS, ext_fields=fields
            )
        except RemotingError:
            # A server that is not ready closes the connection after its response.
            await self._disconnect()
            raise
        return len(json.loads(response.body)["brokerDatas"])

    async def _disconnect(self) -> None:
        if self._remoting is not None:
            await self._remoting.close()
        self._remoting = None


async def _measured(fleet: Fleet, after: Mapping[str, str] | None) -> Seen:
    addresses = [server.address for server in fleet.servers]
    seen, ended = Seen(), asyncio.Event()
    async with AsyncExitStack() as stack:
        agents = await entered(
            stack,
            [
                agent(number, fleet.addresses, [_TOPIC], heartbeat_seconds=_HEARTBEAT_SECONDS)
                for number in range(_BROKERS)
            ],
            _SERVERS,
        )
        async with asyncio.TaskGroup() as clients:
            for _ in range(_CLIENTS):
                clients.create_task(_Client(addresses, seen).run(ended))
            await asyncio.sleep(_CALM_SECONDS)
            # The first connections of clients do not count.
            seen.connected.clear()
            for number in range(_SERVERS):
                await asyncio.to_thread(fleet.start, number, after)
                await registered(agents, _SERVERS)
                await asyncio.sleep(_CALM_SECONDS)
            ended.set()
    return seen
