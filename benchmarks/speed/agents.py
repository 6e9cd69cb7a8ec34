"""Cost of 1,000 broker agents in one process, and the delay of a change on 3 NameServers.

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
from benchmarks.harness.fleet import Fleet, agent, entered, registered
from benchmarks.harness.rounds import Bench
from benchmarks.harness.wire import Wire
from namesrv_broker_agent import BrokerAgent, TopicConfig
from namesrv_runtime import loops

_AGENTS: Final = 1_000
# topics of each broker, which no other broker has
_TOPICS: Final = 10
_SERVERS: Final = 3
# Seconds of heartbeats for each second of effort: 20 s in a full run, in which two agents of three send a heartbeat.
_IDLE_SECONDS_EACH: Final = 2
_CHANGES_A_ROUND: Final = 30
# agents that start at the same time
_AT_ONCE: Final = 50


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
    rounds, seconds = range(bench.effort.rounds), _IDLE_SECONDS_EACH * bench.effort.seconds
    async with AsyncExitStack() as stack:
        wires = [stack.enter_context(Wire(server)) for server in fleet.servers]
        began = time.monotonic()
        for first in range(0, _AGENTS, _AT_ONCE):
            await entered(stack, agents[first : first + _AT_ONCE], _SERVERS)
        details = f"all registered {time.monotonic() - began:.1f} s after the first began"
        cores = [await _computing(seconds) for _ in rounds]
        delays = [
            [await reached(agents, wires, f"new-{each}-{change}") for change in range(_CHANGES_A_ROUND)]
            for each in rounds
        ]
        registrations = sum(state.counts.registrations for each in agents for state in each.servers.values())
    # each agent once on each server, and once more for each change
    expected = _SERVERS * (_AGENTS + len(rounds) * _CHANGES_A_ROUND)
    if registrations != expected:
        raise BenchError(f"agents: {registrations:,} registrations, not {expected:,}: connections broke")
    taken = f"{_AGENTS:,} agents in one process: cores they take"
    what = f"from create_topic() until {_SERVERS} servers have notified a client"
    middle, longest = ([read(times) for times in delays] for read in (statistics.median, max))
    return [
        Figure("agents.cores", taken, "times", cores, at_most(0.25), details),
        Figure("agents.reached", f"{what}: median", "milliseconds", middle, at_most(20)),
        Figure("agents.reached.longest", f"{what}: longest", "milliseconds", longest),
    ]


async def _computing(seconds: float) -> float:
    """Share of a core that this process uses while the agents only send heartbeats."""
    began, computed = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - computed) / (time.monotonic() - began)


async def reached(agents: Sequence[BrokerAgent], wires: Sequence[Wire], topic: str) -> float:
    """Milliseconds from the call of create_topic until a client of each server is notified.

    The agent counts a registration when it has the response, which may come after the notifications.
    """
    for wire in wires:
        await asyncio.to_thread(_watch, wire, topic)
    notified = asyncio.gather(*(asyncio.to_thread(wire.receive) for wire in wires))
    changing = random.choice(agents)
    began = time.perf_counter()
    await changing.create_topic(TopicConfig(topic, 8, 8))
    await notified
    milliseconds = 1000 * (time.perf_counter() - began)
    await registered([changing], len(wires))
    return milliseconds


def _watch(wire: Wire, topic: str) -> None:
    """Watch for a topic that does not exist yet."""
    wire.send(wire.watch_frame([topic]))
    # Requests are handled in order: this response shows that the watch is set.
    wire.info()
