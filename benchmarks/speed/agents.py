"""1,000 broker agents on 3 NameServers, and how soon a change reaches all of them.

All agents are in one process, which this module is when it is run itself, on the core of the load.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

import msgspec

from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.fleet import agent, entered
from benchmarks.harness.rounds import Bench, raise_file_limit
from benchmarks.harness.servers import daemon, module_output
from namesrv_broker_agent import BrokerAgent, TopicConfig
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.codes import RequestCode, SerializeType
from namesrv_runtime import loops
from namesrv_runtime.clock import SystemClock

_AGENTS: Final = 1_000
# of each broker, and of no other one
_TOPICS: Final = 10
_SERVERS: Final = 3
# In the whole of a full run about 20 s of it: each broker sends a heartbeat to each server two times in three.
_SECONDS_FOR_ONE: Final = 2
_CHANGES_A_ROUND: Final = 30
# some start at once: servers have other brokers, too
_AT_ONCE: Final = 50
# starting, five rounds, and leaving
_PATIENCE_SECONDS: Final = 180
_REQUEST_SECONDS: Final = 30.0
_WATCH_MS: Final = 10_000


def measure(bench: Bench) -> list[Figure]:
    """1,000 broker agents on 3 NameServers, and how soon a change reaches all of them."""
    with ExitStack() as stack:
        servers = [stack.enter_context(daemon(bench)) for _ in range(_SERVERS)]
        bench.progress(f"{_AGENTS:,} agents on {_SERVERS} servers")
        report = module_output(
            "benchmarks.speed.agents",
            *("--rounds", str(bench.effort.rounds), "--seconds", str(_SECONDS_FOR_ONE * bench.effort.seconds)),
            *(server.address for server in servers),
            patience_seconds=_PATIENCE_SECONDS,
        )
    if report["surplus_registrations"]:
        raise BenchError(f"agents: {report['surplus_registrations']} registrations too many, connections broke")
    behind = f"all registered {report['registering_seconds']:.1f} s after the first began"
    reached = f"from create_topic() until {_SERVERS} servers have notified a client"
    middle, longest = ([read(times) for times in report["reached_ms"]] for read in (statistics.median, max))
    what = f"{_AGENTS:,} agents in one process: cores they take"
    return [
        Figure("agents.cores", what, "times", report["cores"], at_most(0.25), behind),
        Figure("agents.reached", f"{reached}: median", "milliseconds", middle, at_most(20)),
        Figure("agents.reached.longest", f"{reached}: longest", "milliseconds", longest),
    ]


# -- the process of the agents ----------------------------------------------------------------------------------------


class _Watcher:
    """One client of one server, which is notified when a topic appears."""

    def __init__(self, address: str) -> None:
        self._client = RemotingClient(address, clock=SystemClock())
        self._known: dict[str, Any] = {}

    async def ready(self, topic: str) -> "asyncio.Task[None]":
        """Watch from now on for a topic that is not there yet; the task ends when it is."""
        self._known = await self._pull(topic, wait_ms=0)
        seen = asyncio.create_task(self._see(topic))
        # the watch is on its way, and requests are handled in order: this response shows that it is set
        await asyncio.sleep(0)
        await self._response(RequestCode.SERVER_INFO, b"")
        return seen

    async def _see(self, topic: str) -> None:
        while self._known["routes"].get(topic) is None:
            self._known = await self._pull(topic, wait_ms=_WATCH_MS)

    async def _pull(self, topic: str, *, wait_ms: int) -> dict[str, Any]:
        members = {"topics": [topic], "wait_ms": wait_ms}
        if self._known:
            members |= {"boot_id": self._known["boot_id"], "since": self._known["revision"]}
        body = await self._response(RequestCode.PULL_ROUTES, NATIVE.encode(members))
        found: dict[str, Any] = msgspec.msgpack.decode(body)
        return found

    async def _response(self, code: int, body: bytes) -> bytes:
        response = await self._client.invoke(
            code, body=body, timeout_seconds=_REQUEST_SECONDS, serialize_type=SerializeType.MSGPACK
        )
        return response.body

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()


async def _computing(seconds: float) -> float:
    """Which part of a core this process takes while it does nothing but hold its brokers."""
    began, computed = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - computed) / (time.monotonic() - began)


async def _reached(agents: Sequence[BrokerAgent], watchers: Sequence[_Watcher], topic: str) -> float:
    """How long after the call the last server shows the new topic to a client, in milliseconds."""
    seen = [await watcher.ready(topic) for watcher in watchers]
    began = time.perf_counter()
    await random.choice(agents).create_topic(TopicConfig(topic, 8, 8))
    await asyncio.gather(*seen)
    return (time.perf_counter() - began) * 1000


async def _measured(options: argparse.Namespace) -> dict[str, Any]:
    servers = ";".join(options.addresses)
    agents = [
        agent(number, servers, [f"topic-{number}-{each}" for each in range(_TOPICS)]) for number in range(_AGENTS)
    ]
    watchers = [_Watcher(address) for address in options.addresses]
    async with AsyncExitStack() as stack:
        for watcher in watchers:
            stack.push_async_callback(watcher.close)
        began = time.monotonic()
        for first in range(0, _AGENTS, _AT_ONCE):
            await entered(stack, agents[first : first + _AT_ONCE], len(watchers))
        registering = time.monotonic() - began
        rounds = range(options.rounds)
        cores = [await _computing(options.seconds) for _ in rounds]
        reached = [
            [await _reached(agents, watchers, f"new-{each}-{change}") for change in range(_CHANGES_A_ROUND)]
            for each in rounds
        ]
        registrations = sum(state.registrations for each in agents for state in each.servers.values())
    # one each, and one more for each change: more were connections that broke
    expected = len(watchers) * (_AGENTS + options.rounds * _CHANGES_A_ROUND)
    return {
        "cores": cores,
        "reached_ms": reached,
        "registering_seconds": registering,
        "surplus_registrations": registrations - expected,
    }


def main() -> int:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("addresses", nargs="+")
    options = parser.parse_args()
    raise_file_limit()
    print(json.dumps(loops.run(lambda: _measured(options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
