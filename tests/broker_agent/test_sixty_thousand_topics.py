"""A broker with 60,000 topics fits into one registration, and nobody ever sees a part of it."""

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_remoting.bodies.register import RegisterBrokerBody, encode_json_body
from namesrv_remoting.frames import MAX_FRAME_BYTES
from tests.support.fake_clock import FakeClock
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import NamesrvPeer, native

T = TypeVar("T")

# permission of the first topic and of the last; None without a route
Seen = tuple[int | None, int | None]


def names() -> list[str]:
    """As long as RocketMQ allows, 127 characters, and hard to compress."""
    dice = random.Random(9876)
    return [f"{number:05}-{dice.randbytes(60).hex()}-" for number in range(60_000)]


def note(noted: list[T], news: T) -> None:
    """Keep what is new."""
    if noted[-1:] != [news]:
        noted.append(news)


async def watched(
    work: Coroutine[Any, Any, object], server: InProcess, peer: NamesrvPeer, topics: tuple[str, str]
) -> tuple[list[Seen], list[int]]:
    """What a client sees that never stops asking while work is done, and how many topics there are in the meantime.

    Both each time it is another answer.
    """
    seen: list[Seen] = []
    counts: list[int] = []
    working = asyncio.ensure_future(work)

    async def count() -> None:
        while not working.done():
            note(counts, len(server.namesrv.manager.tables.topic_queue_table))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    is_last = False
    while not is_last:
        is_last = working.done()
        answer = await peer.call(20001, None, native({"topics": list(topics)}), spelling="native")
        routes = answer.value["routes"]
        first, last = (routes[topic] and routes[topic]["queue_datas"][0]["perm"] for topic in topics)
        note(seen, (first, last))
    await asyncio.gather(working, counting)
    note(counts, len(server.namesrv.manager.tables.topic_queue_table))
    return seen, counts


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
async def test_sixty_thousand_topics_are_seen_all_or_none(
    tmp_path: Path, protocol: Literal["native", "rocketmq"]
) -> None:
    """When they are registered, when all of them change, and when the broker leaves; with a server's default limits."""
    topics = names()
    ends = (topics[0], topics[-1])
    async with namesrv_in_process(tmp_path) as server:
        host, port = server.address
        settings = AgentSettings(
            cluster_name="c1",
            broker_name="broker-a",
            broker_addr="10.0.0.5:10911",
            name_servers=f"{host}:{port}",
            protocol=protocol,
        )
        agent = BrokerAgent(settings, map(TopicConfig, topics), clock=FakeClock())
        peer = await server.connect()

        async def register() -> None:
            await agent.__aenter__()
            assert 1 == await agent.registered()

        assert ([(None, None), (6, 6)], [0, 60_000]) == await watched(register(), server, peer, ends)

        async def change() -> None:
            await agent.replace_topics(TopicConfig(topic, perm=4) for topic in topics)
            assert 1 == await agent.registered()

        assert ([(6, 6), (4, 4)], [60_000]) == await watched(change(), server, peer, ends)
        assert ([(4, 4), (None, None)], [60_000, 0]) == await watched(agent.stop(), server, peer, ends)


def test_they_would_not_fit_as_they_are() -> None:
    """What the test above is worth: uncompressed, RocketMQ's spelling of these topics is more than a frame may hold."""
    assert len(encode_json_body(RegisterBrokerBody([TopicConfig(topic) for topic in names()]))) > MAX_FRAME_BYTES
