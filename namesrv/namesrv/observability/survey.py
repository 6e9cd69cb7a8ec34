"""Counts of connections and brokers, however many there are.

Looked at in chunks with the loop running in between, so that no pull waits for a scrape of a large server. What comes
and goes meanwhile is counted or not; nothing is counted twice.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, TypeVar

from namesrv.context import Namesrv
from namesrv.routeinfo.records import HEARTBEAT_SECONDS
from namesrv_remoting.aio.server import RemotingServer
from namesrv_remoting.codes import SerializeType

T = TypeVar("T")
State = Literal["live", "suspect"]

PROTOCOLS: Final = {
    int(SerializeType.JSON): "json",
    int(SerializeType.ROCKETMQ): "rocketmq",
    int(SerializeType.MSGPACK): "msgpack",
    # nothing was received that could be read
    -1: "none",
}

# entries counted between two looks at the sockets: a tenth to a fifth of a millisecond
_CHUNK: Final = 500
# A broker that is silent for so long, or for three quarters of its expiry if that is less, has missed a heartbeat.
_SUSPECT_SECONDS: Final = 1.5 * HEARTBEAT_SECONDS
_SUSPECT_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of one survey."""

    # (protocol, role) -> connections
    connections: Counter[tuple[str, str]]
    brokers: Counter[State]
    # None where the machine does not say
    open_files: int | None
    # of all connections that ever were
    bytes_received: int
    bytes_sent: int
    # (request code, response code) -> answers that the fast lane did not give; unknown codes together, under -1
    answered: dict[tuple[int, int], int]


async def survey(namesrv: Namesrv, server: RemotingServer) -> Survey:
    """Look at everything."""
    # a server without any has a number, too
    connections: Counter[tuple[str, str]] = Counter({("none", "none"): 0})
    async for connection in _in_chunks(iter(list(namesrv.connections.values()))):
        connections[PROTOCOLS.get(connection.serialize_type, "none"), connection.role or "none"] += 1
    brokers: Counter[State] = Counter({"live": 0, "suspect": 0})
    now = namesrv.manager.now()
    async for live in _in_chunks(iter(list(namesrv.manager.tables.broker_live_table.values()))):
        is_suspect = now - live.last_update > min(_SUSPECT_SECONDS, _SUSPECT_SHARE * live.expiry_seconds)
        brokers["suspect" if is_suspect else "live"] += 1
    files, answered = await _open_files(), dict(server.dispatcher.answered)
    return Survey(connections, brokers, files, server.bytes_received, server.bytes_sent, answered)


async def _open_files() -> int | None:
    count = 0
    with contextlib.suppress(OSError), os.scandir("/proc/self/fd") as files:
        async for _ in _in_chunks(files):
            count += 1
    # but for the one that was open to look
    return count - 1 if count else None


async def _in_chunks(items: Iterator[T]) -> AsyncIterator[T]:
    while chunk := list(islice(items, _CHUNK)):
        for item in chunk:
            yield item
        await asyncio.sleep(0)
