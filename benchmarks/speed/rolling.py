"""A rolling restart of three servers under 200 clients that pull ten times a second."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most, none_of
from benchmarks.harness.fleet import Fleet, agent, entered, registered
from benchmarks.harness.rounds import Bench
from benchmarks.harness.wire import route_request
from namesrv_runtime import loops

_SERVERS: Final = 3
_BROKERS: Final = 4
_CLIENTS: Final = 200
_PULL_SECONDS: Final = 0.1
_TOPIC: Final = "orders"
# the defaults
_FLAGS: Final = ("--drain-seconds", "5", "--wait-for-service-seconds", "45")
# shorter than the default of 30 s, so that brokers return to a restarted server at once
_HEARTBEAT_SECONDS: Final = 1.0
# pause before the first server is stopped, and after each restart
_CALM_SECONDS: Final = 2.0
_TIMEOUT_SECONDS: Final = 30.0
_REQUEST: Final = route_request(_TOPIC)


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
    with Fleet(bench, *_FLAGS, count=_SERVERS, environ=before) as fleet:
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

    def __init__(self, ports: list[int], seen: Seen) -> None:
        self._ports = itertools.cycle(random.sample(ports, len(ports)))
        self._seen = seen
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, ended: asyncio.Event) -> None:
        """Pull until `ended`; a lost or refused request is sent once more."""
        await asyncio.sleep(random.uniform(0, _PULL_SECONDS))
        while not ended.is_set():
            self._seen.pulls += 1
            try:
                self._seen.incomplete += await self._pulled_twice() < _BROKERS
            except (OSError, EOFError):
                self._seen.failed += 1
            await asyncio.sleep(_PULL_SECONDS)
        self._disconnect()

    async def _pulled_twice(self) -> int:
        try:
            return await self._pulled()
        except (OSError, EOFError):
            self._seen.repeated += 1
            return await self._pulled()

    async def _pulled(self) -> int:
        """Pull the route and return its number of brokers."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                reader, writer = await self._connection()
                writer.write(_REQUEST)
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            header = int.from_bytes(frame[1:4])
            if json.loads(frame[4 : 4 + header])["code"]:
                # A server that is not ready closes the connection after this response.
                raise EOFError
        except (OSError, EOFError):
            self._disconnect()
            raise
        return len(json.loads(frame[4 + header :])["brokerDatas"])

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A connection that the server has closed in the meantime is not used.
        if self._streams is not None and self._streams[0].at_eof():
            self._disconnect()
        if self._streams is None:
            self._seen.connected[int(time.monotonic())] += 1
            self._streams = await asyncio.open_connection("127.0.0.1", next(self._ports))
        return self._streams

    def _disconnect(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def _measured(fleet: Fleet, after: Mapping[str, str] | None) -> Seen:
    ports = [server.port for server in fleet.servers]
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
                clients.create_task(_Client(ports, seen).run(ended))
            await asyncio.sleep(_CALM_SECONDS)
            # The first connections of clients do not count.
            seen.connected.clear()
            for number in range(_SERVERS):
                await asyncio.to_thread(fleet.start, number, after)
                await registered(agents, _SERVERS)
                await asyncio.sleep(_CALM_SECONDS)
            ended.set()
    return seen
