"""The exception and the log of Java's client have the cause of a topic without a route.

tests/client/ctl/test_causes.py has the response to each misconfiguration.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.client.ctl.test_causes import CAUSES, World
from tests.interop.peers.driver import Driver


async def test_java_client_shows_the_cause(tmp_path: Path, clients: Driver, unique: str) -> None:
    """The exception of a request for the topic's queues has the lines of the NameServer's response.

    The exception of a send has Apache's own text only; the lines of the NameServer are in the client's log.
    """
    cause = CAUSES["split list"]
    async with AsyncExitStack() as stack:
        world = World(tmp_path, stack)
        await cause.set_up(world)
        await asyncio.to_thread(clients.start_producer, unique, [world.servers[-1].where], retries=0)

        error = await asyncio.to_thread(clients.why_unrouted, unique, "T")
        assert await asyncio.to_thread(clients.send, unique, "T", 1, unique) == set()

    assert error.startswith("org.apache.rocketmq.client.exception.MQClientException: Can not find Message Queue")
    assert cause.words in error.replace("\n", " ")
    (failed,) = clients.events("failed", name=unique)
    clients.excuse("No route info of this topic: T")
    await asyncio.to_thread(clients.close, unique)
    assert cause.words not in failed["error"]
    log = clients.home / "logs" / "rocketmqlogs" / "rocketmq_client.log"
    assert cause.words in log.read_text(encoding="utf-8")
