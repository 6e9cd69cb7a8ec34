"""A broker with 60,000 topics fits into one registration, and is visible as a whole."""

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import BrokerAgent, TopicConfig
from tests.support.agents import agent_settings
from tests.support.fake_clock import FakeClock
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import NamesrvPeer, native

# permission of the first topic and of the last; None without a route
Seen = tuple[int | None, int | None]


def names() -> list[str]:
    """Names of 127 characters, RocketMQ's limit, that do not compress well."""
    dice = random.Random(9876)
    return [f"{number:05}-{dice.randbytes(60).hex()}-" for number in range(60_000)]


async def watched(work: Coroutine[Any, Any, object], peer: NamesrvPeer, topics: tuple[str, str]) -> list[Seen]:
    """Distinct responses to a client that polls while the work is done."""
    seen: list[Seen] = []
    working = asyncio.ensure_future(work)
    is_last = False
    while not is_last:
        is_last = working.done()
        answer = await peer.call(20001, None, native({"topics": list(topics)}), spelling="native")
        routes = answer.value["routes"]
        first, last = (routes[topic] and routes[topic]["queue_datas"][0]["perm"] for topic in topics)
        if seen[-1:] != [(first, last)]:
            seen.append((first, last))
    await working
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_sixty_thousand_topics_are_seen_all_or_none(tmp_path: Path, protocol: str) -> None:
    """Registration, a change of all topics and the unregistration are atomic for clients, with default limits."""
    topics = names()
    ends = (topics[0], topics[-1])
    async with namesrv_in_process(tmp_path) as server:
        agent = BrokerAgent(
            agent_settings(server.where, protocol=protocol), map(TopicConfig, topics), clock=FakeClock()
        )
        peer = await server.connect()

        async def register() -> None:
            await agent.__aenter__()
            assert await agent.registered() == 1

        assert await watched(register(), peer, ends) == [(None, None), (6, 6)]

        async def change() -> None:
            await agent.replace_topics(TopicConfig(topic, perm=4) for topic in topics)
            assert await agent.registered() == 1

        assert await watched(change(), peer, ends) == [(6, 6), (4, 4)]
        assert await watched(agent.stop(), peer, ends) == [(4, 4), (None, None)]
