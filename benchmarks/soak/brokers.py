"""Brokers of a soak: agents that change topics, leave and return.

Their response to `settle` has the topics of each broker: {BROKER: {TOPIC: [READ_QUEUES, WRITE_QUEUES]}}.
"""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Final

from benchmarks.soak.workers import PATIENCE_SECONDS, some_at_a_time
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig

# topics of all brokers together, so that each is on several brokers
TOPICS: Final = 500
TOPICS_OF_A_BROKER: Final = 10
# Names of topics that no broker has for long. They are reused: a server remembers up to 200,000 removed topics for
# watching clients, and new names would make its memory grow for the whole hour.
_PASSING: Final = 500
# largest share of brokers that are away at the same time
_AWAY_SHARE: Final = 0.05


class Brokers:
    """The agents by number, and the numbers of those that are away."""

    def __init__(
        self, port: int, prefix: str, numbers: Sequence[int], *, heartbeat_seconds: float, expiry_seconds: float
    ) -> None:
        self._port = port
        self._prefix = prefix
        self._numbers = numbers
        self._times = {"heartbeat_seconds": heartbeat_seconds, "expiry_seconds": expiry_seconds}
        self._random = random.Random(prefix)
        # Each agent has a new broker name: whatever a server keeps of a removed broker adds up.
        self._names = itertools.count()
        self._agents: dict[int, BrokerAgent] = {}
        self._away: set[int] = set()

    def _agent(self, number: int) -> BrokerAgent:
        settings = AgentSettings(
            cluster_name="DefaultCluster",
            broker_name=f"{self._prefix}-{number}-{next(self._names)}",
            broker_addr=f"10.0.{number // 250}.{number % 250}:10911",
            name_servers=f"127.0.0.1:{self._port}",
            heartbeat_seconds=self._times["heartbeat_seconds"],
            expiry_seconds=self._times["expiry_seconds"],
        )
        names = self._random.sample(range(TOPICS), TOPICS_OF_A_BROKER)
        # Numbers of queues vary from the start, as later changes make them; otherwise memory would grow at first.
        return BrokerAgent(settings, [self._topic(f"topic-{name}") for name in names])

    def _topic(self, name: str) -> TopicConfig:
        queues = self._random.randrange(1, 17)
        return TopicConfig(name, queues, queues)

    async def start(self) -> None:
        """Start all agents, some at a time."""
        await some_at_a_time(self._join, self._numbers)

    async def _join(self, number: int) -> None:
        agent = self._agents[number] = self._agent(number)
        await agent.__aenter__()
        await agent.registered(count=1, timeout_seconds=PATIENCE_SECONDS)

    async def change(self) -> str:
        """Let an agent leave or return, or change one of its topics."""
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
        if len(topics) > TOPICS_OF_A_BROKER:
            await agent.delete_topic(self._random.choice(topics))
            return "deleted"
        if self._random.random() < 0.3:
            name = f"passing-{self._random.randrange(_PASSING)}"
            if name not in topics:
                await agent.create_topic(TopicConfig(name, 4, 4))
            return "created"
        # one of the broker's topics, or a new one
        name = self._random.choice([*topics, f"topic-{self._random.randrange(TOPICS)}"])
        change = agent.update_topic if name in agent.topics else agent.create_topic
        await change(self._topic(name))
        return "changed"

    async def settle(self, _: object) -> dict[str, dict[str, list[int]]]:
        """Let all agents return, and wait until the server knows all topics."""
        for number in sorted(self._away):
            await self._join(number)
        self._away.clear()
        for agent in self._agents.values():
            for name in [name for name in agent.topics if name.startswith("passing-")]:
                await agent.delete_topic(name)
        await asyncio.gather(
            *(agent.registered(count=1, timeout_seconds=PATIENCE_SECONDS) for agent in self._agents.values())
        )
        return {
            agent.settings.broker_name: {
                topic.topic_name: [topic.read_queue_nums, topic.write_queue_nums] for topic in agent.topics.values()
            }
            for agent in self._agents.values()
        }

    async def stop(self) -> None:
        """Stop all agents at the same time."""
        await asyncio.gather(*(agent.stop() for agent in self._agents.values()))
