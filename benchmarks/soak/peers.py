"""Peers of a soak: brokers that change topics, leave and return, clients that are replaced, and strangers.

    python -m benchmarks.soak.peers ADDRESS COUNT HEARTBEAT_SECONDS EXPIRY_SECONDS

runs the victims: brokers that do not change, whose process is killed, stopped and frozen. It prints their topics once
all are registered, and ends at SIGTERM.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import random
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from benchmarks.harness.wire import native_request, request, route_request
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient, RouteError
from namesrv_remoting.bodies.base import chunked
from namesrv_remoting.codes import RequestCode
from namesrv_runtime import loops

T = TypeVar("T")
# topic -> queues to read, queues to write
Queues = Mapping[str, list[int]]
# topic -> broker -> queues to read, queues to write
Routes = Mapping[str, Mapping[str, list[int]]]

# Seconds after which a wrong state counts as wrong; on a busy machine, changes take a while.
PATIENCE_SECONDS: Final = 600.0
# name of brokers whose process is killed and frozen; no other broker may be evicted for silence
VICTIM: Final = "victim"
_AT_ONCE: Final = 50
# number of topics of all brokers together, so that each topic is on several brokers
_TOPICS: Final = 500
_TOPICS_OF_A_BROKER: Final = 10
_TOPICS_OF_A_CLIENT: Final = 3
# Number of topics that no broker has for long. Their names are reused: a server remembers up to 200,000 removed topics
# for watching clients, and new names would make its memory grow for the whole hour.
_PASSING: Final = 500
# largest share of brokers that are away at the same time
_AWAY_SHARE: Final = 0.05
# Every tenth client watches, the others poll.
_WATCHING: Final = 10
_STRANGERS_PATIENCE_SECONDS: Final = 1.0


async def _some_at_a_time(begin: Callable[[int], Awaitable[T]], numbers: Iterable[int]) -> list[T]:
    """Call a function for each number, at most _AT_ONCE at a time, and return all results."""
    begun: list[T] = []
    for some in chunked(numbers, _AT_ONCE):
        begun += await asyncio.gather(*map(begin, some))
    return begun


# -- brokers ----------------------------------------------------------------------------------------------------------


class Brokers:
    """The agents by number, and the numbers of those that are away."""

    def __init__(self, address: str, prefix: str, *, heartbeat_seconds: float, expiry_seconds: float) -> None:
        self._prefix = prefix
        self._settings: dict[str, Any] = {
            "cluster_name": "DefaultCluster",
            "name_servers": address,
            "heartbeat_seconds": heartbeat_seconds,
            "expiry_seconds": expiry_seconds,
        }
        self._random = random.Random(prefix)
        # Each agent has a new broker name, so that a leak of a server for each removed broker shows.
        self._names = itertools.count()
        self._agents: dict[int, BrokerAgent] = {}
        self._away: set[int] = set()

    async def start(self, numbers: Iterable[int]) -> None:
        """Start an agent for each number, some at a time."""
        await _some_at_a_time(self._join, numbers)

    async def _join(self, number: int) -> None:
        settings = AgentSettings(
            broker_name=f"{self._prefix}-{number}-{next(self._names)}",
            broker_addr=f"10.0.{number // 250}.{number % 250}:10911",
            **self._settings,
        )
        names = self._random.sample(range(_TOPICS), _TOPICS_OF_A_BROKER)
        # Numbers of queues vary from the start, as later changes make them; otherwise memory would grow at first.
        topics = [self._topic(f"topic-{name}") for name in names]
        agent = self._agents[number] = BrokerAgent(settings, topics)
        await agent.__aenter__()
        await agent.registered(count=1, timeout_seconds=PATIENCE_SECONDS)

    def _topic(self, name: str) -> TopicConfig:
        queues = self._random.randrange(1, 17)
        return TopicConfig(name, queues, queues)

    async def change(self) -> str:
        """Let an agent leave or return, or change one of its topics; return the name of the change."""
        number = self._random.choice(list(self._agents))
        if number in self._away:
            self._away.remove(number)
            await self._join(number)
            return "joined"
        agent = self._agents[number]
        if self._random.random() < 0.2 and len(self._away) < _AWAY_SHARE * len(self._agents):
            self._away.add(number)
            await agent.stop()
            return "left"
        return await self._change_topic(agent)

    async def _change_topic(self, agent: BrokerAgent) -> str:
        topics = list(agent.topics)
        if len(topics) > _TOPICS_OF_A_BROKER:
            await agent.delete_topic(self._random.choice(topics))
            return "deleted"
        if self._random.random() < 0.3:
            name = f"passing-{self._random.randrange(_PASSING)}"
            if name not in topics:
                await agent.create_topic(TopicConfig(name, 4, 4))
            return "created"
        # one of the broker's topics, or a new one
        name = self._random.choice([*topics, f"topic-{self._random.randrange(_TOPICS)}"])
        change = agent.update_topic if name in agent.topics else agent.create_topic
        await change(self._topic(name))
        return "changed"

    async def settle(self) -> dict[str, Queues]:
        """Let all agents return, wait until the server knows all topics, and return the topics of each broker."""
        for number in sorted(self._away):
            await self._join(number)
        self._away.clear()
        for agent in self._agents.values():
            for name in [name for name in agent.topics if name.startswith("passing-")]:
                await agent.delete_topic(name)
            await agent.registered(count=1, timeout_seconds=PATIENCE_SECONDS)
        return {
            agent.settings.broker_name: {
                topic.topic_name: [topic.read_queue_nums, topic.write_queue_nums] for topic in agent.topics.values()
            }
            for agent in self._agents.values()
        }

    async def stop(self) -> None:
        """Stop all agents at the same time."""
        await asyncio.gather(*(agent.stop() for agent in self._agents.values()))


# -- clients ----------------------------------------------------------------------------------------------------------


class Clients:
    """The clients, and the topics of each."""

    def __init__(self, address: str, poll_seconds: float) -> None:
        self._address = address
        self._poll_seconds = poll_seconds
        self._random = random.Random("clients")
        self._clients: list[RouteClient] = []
        self._topics: dict[RouteClient, list[str]] = {}

    async def start(self, count: int) -> None:
        """Start the clients, some at a time."""
        self._clients = await _some_at_a_time(self._started, range(count))

    async def _started(self, number: int) -> RouteClient:
        settings = ClientSettings(
            name_servers=self._address,
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
        self._topics[client] = [f"topic-{topic}" for topic in self._random.sample(range(_TOPICS), _TOPICS_OF_A_CLIENT)]
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


# -- strangers --------------------------------------------------------------------------------------------------------

# The reasons for which the server closes connections of strangers, as its log names them.
EXPECTED_REFUSALS: Final = frozenset({"frame_too_large", "slow_frame"})


class Strangers:
    """Connections that send garbage, half a frame, or requests for names that no broker has."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._random = random.Random("strangers")
        # Each name is new, so that a leak of a server for each unknown name shows.
        self._names = itertools.count()

    async def change(self) -> str:
        """Connect, send something, and disconnect, half the time without reading a response."""
        # The server may be stopped, and may close the connection.
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_STRANGERS_PATIENCE_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                with contextlib.closing(writer):
                    writer.write(self._data())
                    if self._random.random() < 0.5:
                        await reader.read(65_536)
        return "strangers"

    def _data(self) -> bytes:
        name = f"unknown-{next(self._names)}"
        key = {"namespace": "SOAK", "key": name, "value": "v" * 100}
        giant_frame = struct.pack(">I", 0x7FFFFFFF)
        partial_frame = struct.pack(">II", 100, 50) + b"{"
        return self._random.choice(
            [
                b"GET / HTTP/1.1\r\n\r\n",
                giant_frame,
                partial_frame,
                route_request(name),
                # a watch whose client disconnects
                native_request(RequestCode.PULL_ROUTES, topics=[name], wait_ms=60_000),
                request(RequestCode.PUT_KV_CONFIG, key) + request(RequestCode.DELETE_KV_CONFIG, key),
            ]
        )


# -- the process of the victims ---------------------------------------------------------------------------------------


async def _be_victims(address: str, count: int, heartbeat_seconds: float, expiry_seconds: float) -> None:
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    brokers = Brokers(address, VICTIM, heartbeat_seconds=heartbeat_seconds, expiry_seconds=expiry_seconds)
    await brokers.start(range(count))
    print(json.dumps(await brokers.settle()), flush=True)
    await terminated.wait()
    await brokers.stop()


if __name__ == "__main__":
    # Without warnings of late heartbeats and of a stopped server, which the faults cause.
    logging.disable(logging.WARNING)
    loops.run(lambda: _be_victims(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
