"""Cost of 1,000 agents in one process, and how soon they register; agents.py runs this as a process of its own."""

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_runtime import loops
from namesrv_runtime.clock import SystemClock

AGENTS: Final = 1_000
# of each broker, and nobody else's
TOPICS: Final = 10
# as many start at once: servers have other brokers, too
_AT_ONCE: Final = 50
_PATIENCE_SECONDS: Final = 30.0
_WAIT_MS: Final = 10_000


class _Watcher:
    """One client of one server: it sees a topic appear as soon as the server tells it."""

    def __init__(self, port: int) -> None:
        self._client = RemotingClient(f"127.0.0.1:{port}", clock=SystemClock())
        self._known: dict[str, Any] = {}

    async def ready(self, topic: str) -> "asyncio.Task[None]":
        """Watch from now on for a topic that is not there yet; what ends when it is."""
        self._known = await self._pull(topic, wait_ms=0)
        seen = asyncio.create_task(self._see(topic))
        # the watch is asked on its way, and done in order: this answer says that it is set
        await asyncio.sleep(0)
        await self._ask(RequestCode.SERVER_INFO, b"")
        return seen

    async def _see(self, topic: str) -> None:
        while self._known["routes"].get(topic) is None:
            self._known = await self._pull(topic, wait_ms=_WAIT_MS)

    async def _pull(self, topic: str, *, wait_ms: int) -> dict[str, Any]:
        asked = {"topics": [topic], "wait_ms": wait_ms}
        if self._known:
            asked |= {"boot_id": self._known["boot_id"], "since": self._known["revision"]}
        found: dict[str, Any] = msgspec.msgpack.decode(await self._ask(RequestCode.PULL_ROUTES, NATIVE.encode(asked)))
        return found

    async def _ask(self, code: int, body: bytes) -> bytes:
        answer = await self._client.invoke(
            code, body=body, timeout_seconds=_PATIENCE_SECONDS, serialize_type=SerializeType.MSGPACK
        )
        return answer.body

    async def close(self) -> None:
        """Hang up."""
        await self._client.close()


def _agent(number: int, ports: Sequence[int]) -> BrokerAgent:
    settings = AgentSettings(
        cluster_name="DefaultCluster",
        broker_name=f"broker-{number}",
        broker_addr=f"10.0.{number // 250}.{number % 250}:10911",
        name_servers=";".join(f"127.0.0.1:{port}" for port in ports),
    )
    topics = [TopicConfig(f"topic-{number}-{topic}", 8, 8) for topic in range(TOPICS)]
    return BrokerAgent(settings, topics, state=lambda: {"queue_depth": number, "disk_used": 0.5})


async def _started(agents: Sequence[BrokerAgent], stack: AsyncExitStack, servers: int) -> None:
    for first in range(0, len(agents), _AT_ONCE):
        some = agents[first : first + _AT_ONCE]
        for agent in some:
            await stack.enter_async_context(agent)
        await asyncio.gather(*(agent.registered(count=servers, timeout_seconds=_PATIENCE_SECONDS) for agent in some))


async def _computing(seconds: float) -> float:
    """Which part of a core this process takes while it does nothing but hold its brokers."""
    began, computed = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - computed) / (time.monotonic() - began)


async def _reached(agent: BrokerAgent, watchers: Sequence[_Watcher], topic: str) -> float:
    """How long after the call the last server shows the new topic to a client, in milliseconds."""
    seen = [await watcher.ready(topic) for watcher in watchers]
    began = time.perf_counter()
    await agent.create_topic(TopicConfig(topic, 8, 8))
    await asyncio.gather(*seen)
    return (time.perf_counter() - began) * 1000


async def _measured(options: argparse.Namespace) -> dict[str, Any]:
    agents = [_agent(number, options.ports) for number in range(AGENTS)]
    watchers = [_Watcher(port) for port in options.ports]
    async with AsyncExitStack() as stack:
        for watcher in watchers:
            stack.push_async_callback(watcher.close)
        began = time.monotonic()
        await _started(agents, stack, len(options.ports))
        registering = time.monotonic() - began
        cores = [await _computing(options.seconds) for _ in range(options.rounds)]
        reached = [
            [
                await _reached(random.choice(agents), watchers, f"new-{each}-{change}")
                for change in range(options.changes)
            ]
            for each in range(options.rounds)
        ]
        registrations = sum(state.registrations for agent in agents for state in agent.servers.values())
    return {
        "cores": cores,
        "reached_ms": reached,
        "registering_seconds": registering,
        # one each, and one more for each change: more were connections that broke
        "surplus_registrations": registrations - len(options.ports) * (AGENTS + options.rounds * options.changes),
    }


def main() -> int:
    """Print as JSON what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--changes", type=int, required=True)
    parser.add_argument("ports", type=int, nargs="+")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(loops.run(lambda: _measured(options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
