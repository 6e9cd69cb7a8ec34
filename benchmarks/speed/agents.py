"""1,000 broker agents on 3 NameServers, and how soon a change reaches all of them.

All agents are in this process, on the core of the load.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.fleet import Fleet, agent, entered
from benchmarks.harness.rounds import Bench
from benchmarks.harness.wire import Wire, native_request
from namesrv_broker_agent import BrokerAgent, TopicConfig
from namesrv_remoting.codes import RequestCode
from namesrv_runtime import loops

_AGENTS: Final = 1_000
# of each broker, and of no other one
_TOPICS: Final = 10
_SERVERS: Final = 3
# In the whole of a full run about 20 s of it: each broker sends a heartbeat to each server two times in three.
_SECONDS_FOR_ONE: Final = 2
_CHANGES_A_ROUND: Final = 30
# some start at once: servers have other brokers, too
_AT_ONCE: Final = 50
_WATCH_MS: Final = 10_000


def measure(bench: Bench) -> list[Figure]:
    """1,000 broker agents on 3 NameServers, and how soon a change reaches all of them."""
    bench.progress(f"{_AGENTS:,} agents on {_SERVERS} servers")
    with Fleet(bench, count=_SERVERS) as fleet:
        return loops.run(lambda: _measured(bench, fleet))


async def _measured(bench: Bench, fleet: Fleet) -> list[Figure]:
    agents = [
        agent(number, fleet.addresses, [f"topic-{number}-{each}" for each in range(_TOPICS)])
        for number in range(_AGENTS)
    ]
    rounds, seconds = range(bench.effort.rounds), _SECONDS_FOR_ONE * bench.effort.seconds
    async with AsyncExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for server in fleet.servers]
        began = time.monotonic()
        for first in range(0, _AGENTS, _AT_ONCE):
            await entered(stack, agents[first : first + _AT_ONCE], _SERVERS)
        behind = f"all registered {time.monotonic() - began:.1f} s after the first began"
        cores = [await _computing(seconds) for _ in rounds]
        reached = [
            [await _reached(agents, wires, f"new-{each}-{change}") for change in range(_CHANGES_A_ROUND)]
            for each in rounds
        ]
        registrations = sum(state.registrations for each in agents for state in each.servers.values())
    # one each, and one more for each change
    expected = _SERVERS * (_AGENTS + len(rounds) * _CHANGES_A_ROUND)
    if registrations != expected:
        raise BenchError(f"agents: {registrations - expected} registrations too many, connections broke")
    what = f"from create_topic() until {_SERVERS} servers have notified a client"
    middle, longest = ([read(times) for times in reached] for read in (statistics.median, max))
    return [
        Figure(
            "agents.cores", f"{_AGENTS:,} agents in one process: cores they take", "times", cores, at_most(0.25), behind
        ),
        Figure("agents.reached", f"{what}: median", "milliseconds", middle, at_most(20)),
        Figure("agents.reached.longest", f"{what}: longest", "milliseconds", longest),
    ]


async def _computing(seconds: float) -> float:
    """Which part of a core this process takes while it does nothing but hold its brokers."""
    began, computed = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - computed) / (time.monotonic() - began)


async def _reached(agents: Sequence[BrokerAgent], wires: Sequence[Wire], topic: str) -> float:
    """How long after the call the last server shows the new topic to a client, in milliseconds."""
    for wire in wires:
        await asyncio.to_thread(_watch, wire, topic)
    notified = asyncio.gather(*(asyncio.to_thread(wire.receive) for wire in wires))
    began = time.perf_counter()
    await random.choice(agents).create_topic(TopicConfig(topic, 8, 8))
    await notified
    return (time.perf_counter() - began) * 1000


def _watch(wire: Wire, topic: str) -> None:
    """Watch for a topic that is not there yet."""
    known = wire.native(RequestCode.PULL_ROUTES, topics=[topic])
    since = {"boot_id": known["boot_id"], "since": known["revision"], "wait_ms": _WATCH_MS}
    wire.send(native_request(RequestCode.PULL_ROUTES, topics=[topic], **since))
    # Requests are handled in order: this response shows that the watch is set.
    wire.info()
