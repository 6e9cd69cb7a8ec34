"""Clients of a soak, which pull or watch topics, and are replaced.

`settle` gets the true routes {TOPIC: {BROKER: [READ_QUEUES, WRITE_QUEUES]}}; the response is the number of clients with
another route of a topic: {TOPIC: COUNT}.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from benchmarks.soak.brokers import TOPICS
from benchmarks.soak.workers import PATIENCE_SECONDS, some_at_a_time
from namesrv_client import ClientSettings, RouteClient, RouteError

_TOPICS_OF_A_CLIENT: Final = 3
# topic -> broker -> queues to read, queues to write
Routes = Mapping[str, Mapping[str, list[int]]]
# Every tenth client watches, the others poll.
_WATCHING: Final = 10


class Clients:
    """The clients, and the topics of each."""

    def __init__(self, port: int, count: int, poll_seconds: float) -> None:
        self._port = port
        self._count = count
        self._poll_seconds = poll_seconds
        self._random = random.Random("clients")
        self._clients: list[RouteClient] = []
        self._topics: dict[RouteClient, list[str]] = {}

    async def start(self) -> None:
        """Start all clients, some at a time."""
        self._clients = await some_at_a_time(self._started, range(self._count))

    async def _started(self, number: int) -> RouteClient:
        settings = ClientSettings(
            name_servers=f"127.0.0.1:{self._port}",
            poll_seconds=self._poll_seconds,
            warm_up_seconds=0.0,
            # Long time-outs: with a thousand clients in one process a response waits before it is handled.
            attempt_timeout_seconds=10.0,
            connect_timeout_seconds=10.0,
            call_timeout_seconds=30.0,
            watch=number % _WATCHING == 0,
            protocol="rocketmq" if number % _WATCHING == 1 else "native",
        )
        client = await RouteClient(settings).__aenter__()
        self._topics[client] = [f"topic-{topic}" for topic in self._random.sample(range(TOPICS), _TOPICS_OF_A_CLIENT)]
        await self._pull(client)
        return client

    async def _pull(self, client: RouteClient) -> None:
        for topic in self._topics[client]:
            # The topic has no broker now, or the server is stopped; the client continues to poll.
            with contextlib.suppress(RouteError):
                await client.route(topic)

    async def change(self) -> str:
        """Replace a client."""
        number = self._random.randrange(len(self._clients))
        client = self._clients[number]
        del self._topics[client]
        await client.__aexit__(None, None, None)
        self._clients[number] = await self._started(number)
        return "came"

    async def settle(self, routes: Routes) -> Counter[str]:
        """Wait until each client has the true routes of its topics; return the number of wrong ones by topic."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        for client in self._clients:
            await self._pull(client)
        while wrong := self._wrong(routes):
            if time.monotonic() > ends_at:
                break
            await asyncio.sleep(self._poll_seconds / 5)
        return wrong

    def _wrong(self, routes: Routes) -> Counter[str]:
        return Counter(
            topic
            for client, topics in self._topics.items()
            for topic in topics
            if _known(client, topic) != routes.get(topic, {})
        )

    async def stop(self) -> None:
        """Close all clients at the same time."""
        await asyncio.gather(*(client.__aexit__(None, None, None) for client in self._clients))


def _known(client: RouteClient, topic: str) -> dict[str, list[int]]:
    route = client.cached(topic)
    if route is None or route.confirmed_absent_since is not None:
        return {}
    return {queue.broker_name: [queue.read_queue_nums, queue.write_queue_nums] for queue in route.data.queue_datas}
