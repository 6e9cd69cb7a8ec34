"""The exception of Java's client names the cause of a topic without a route."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.client.ctl.test_causes import CAUSES, World
from tests.interop.peers.driver import Driver
from tests.support.namesrv_peer import MASTER, Broker, NamesrvPeer

# A Java client connects to brokers that create topics automatically; here such a connection is refused.
_REFUSED: Final = "127.0.0.1:1"


class JavaWorld(World):
    """The NameServers and brokers of a misconfiguration, for a Java client."""

    async def broker(self, broker: Broker = MASTER, *topics: str, **settings: Any) -> NamesrvPeer:
        addr = _REFUSED if "TBW102" in topics else broker.addr
        return await super().broker(broker._replace(addr=addr), *topics, **settings)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JavaWorld]:
    """A world without a server."""
    async with AsyncExitStack() as stack:
        yield JavaWorld(tmp_path, stack)


@pytest.mark.parametrize("name", [name for name, cause in CAUSES.items() if cause.is_in_remark])
async def test_exception_names_the_cause(world: JavaWorld, clients: Driver, unique: str, name: str) -> None:
    """The exception of a request for the topic's queues has the lines of the NameServer's response."""
    cause = CAUSES[name]
    await cause.set_up(world)
    signing = {} if world.key is None else {"key": f"{world.key.access_key}:{world.key.secret}"}
    await asyncio.to_thread(clients.start_producer, unique, [world.servers[-1].where], **signing)

    error = await asyncio.to_thread(clients.why_unrouted, unique, "T")
    await asyncio.to_thread(clients.close, unique)

    assert error.startswith("org.apache.rocketmq.client.exception.MQClientException: Can not find Message Queue")
    assert cause.words in error.replace("\n", " ")


async def test_log_of_a_failed_send_names_the_cause(world: JavaWorld, clients: Driver, unique: str) -> None:
    """The exception of a send has Apache's own text only; the lines of the NameServer are in the client's log."""
    cause = CAUSES["split list"]
    await cause.set_up(world)
    await asyncio.to_thread(clients.start_producer, unique, [world.servers[-1].where], retries=0)

    assert await asyncio.to_thread(clients.send, unique, "T", 1, unique) == set()
    (failed,) = clients.events("failed", name=unique)
    clients.excuse("No route info of this topic: T")
    await asyncio.to_thread(clients.close, unique)

    assert cause.words not in failed["error"]
    log = clients.home / "logs" / "rocketmqlogs" / "rocketmq_client.log"
    assert cause.words in log.read_text(encoding="utf-8")
