"""An application that pulls the route of a topic all the time, and reports what it saw.

    python application.py poll|watch|java BROKERS

`poll` and `watch` use the client library; `java` asks as Apache's Java client does: in JSON, over one connection to one
server of the list, and the next one of the list once that connection is dead. The servers are those of NAMESRV_ADDR, to
the library those of NAME_SERVERS, which may also be a file.
It prints `asks SERVER` whenever it takes another server, `ready` when it has seen a complete route (one with that many
brokers), and at SIGTERM, as its last line, a JSON object with all that it counted.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from namesrv_client import ClientSettings, RouteClient, RouteError
from namesrv_runtime.address import parse_address
from tests.support.raw_peer import RawPeer
from tests.support.spelling import json_frame

TOPIC: Final = "orders"
_PAUSE_SECONDS: Final = 0.02
# It is ended long before; whoever was to do that may have been killed.
_LONGEST_SECONDS: Final = 600.0
# ten times Java's mqClientApiTimeout, and the library's: on a busy machine a question may take seconds
_TIMEOUT_SECONDS: Final = 30.0


def say(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Seen:
    """What came of all pulls."""

    pulls: int = 0
    # pulls that gave the application no route, and why
    failed: list[str] = field(default_factory=list)
    # brokers of routes that had fewer than there are
    incomplete: list[list[str]] = field(default_factory=list)
    # questions that had to be asked again, each with its reason
    repeated: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0

    def server(self, address: str | None) -> None:
        """Another server is asked."""
        if address is not None and (not self.servers or self.servers[-1] != address):
            self.servers.append(address)
            say(f"asks {address}")


class LostError(Exception):
    """The connection ended, or nothing came in time; the message says which."""


class JavaLike:
    """One connection to the chosen server; when it is dead, the next request takes the next server of the list."""

    def __init__(self, addresses: list[str], seen: Seen) -> None:
        # shuffled once, as Java does
        self._addresses = itertools.cycle(random.sample(addresses, len(addresses)))
        self._seen = seen
        self._peer: RawPeer | None = None

    async def pull(self) -> list[str]:
        """The brokers of the topic. Raises LostError: this question failed, the next goes to the next server."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                peer = await self._connection()
                answer = await peer.ask(json_frame(105, ext={"topic": TOPIC, "acceptStandardJsonOnly": "true"}))
            if answer.code:
                raise EOFError(answer.remark)
            return sorted(group["brokerName"] for group in json.loads(answer.body)["brokerDatas"])
        except (OSError, EOFError, TimeoutError) as error:
            self._hang_up()
            raise LostError(type(error).__name__) from error

    async def _connection(self) -> RawPeer:
        # a connection that the server has closed meanwhile is known to be dead before it is used
        if self._peer is not None and (self._peer.reader.at_eof() or self._peer.reader.exception()):
            self._hang_up()
        if self._peer is None:
            address = next(self._addresses)
            self._seen.server(address)
            self._peer = await RawPeer.connect(parse_address(address))
        return self._peer

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None


async def java_like(seen: Seen, run: "Run") -> None:
    """Pull; what fails is asked once more, as Java does at its next poll, and fails if that does."""
    client = JavaLike(os.environ["NAMESRV_ADDR"].split(";"), seen)

    async def pull() -> list[str]:
        try:
            return await client.pull()
        except LostError as error:
            seen.repeated.append(str(error))
            return await client.pull()

    await run(pull)


async def library(seen: Seen, run: "Run", *, watch: bool) -> None:
    """Pull by the library: what it has in memory, and then what a server says now, both of which have to be right."""
    name_servers = os.environ["NAME_SERVERS"]
    settings = ClientSettings(
        name_servers=name_servers,
        watch=watch,
        poll_seconds=1.0,
        refresh_seconds=0.5,
        attempt_timeout_seconds=10.0,
        connect_timeout_seconds=10.0,
        call_timeout_seconds=_TIMEOUT_SECONDS,
    )
    async with RouteClient(settings) as client:

        async def pull() -> list[str]:
            remembered = await client.route(TOPIC)
            asked = remembered if watch else await client.route(TOPIC, max_stale=0.0)
            seen.server(client.chosen_server)
            return sorted(remembered.brokers.keys() & asked.brokers.keys())

        await run(pull)


Run = Callable[[Callable[[], Awaitable[list[str]]]], Awaitable[None]]


async def main(kind: str, brokers: int) -> None:
    """Pull until SIGTERM."""
    seen, ended = Seen(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def run(pull: Callable[[], Awaitable[list[str]]]) -> None:
        is_ready = False
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not ended.is_set() and time.monotonic() < deadline:
            began = time.monotonic()
            try:
                found = await pull()
            except (RouteError, LostError) as error:
                found = []
                if is_ready:
                    seen.failed.append(str(error))
            if not is_ready and len(found) == brokers:
                is_ready = True
                say("ready")
            elif is_ready and found and len(found) < brokers:
                seen.incomplete.append(found)
            if is_ready:
                seen.pulls += 1
                seen.longest_seconds = max(seen.longest_seconds, time.monotonic() - began)
            await asyncio.sleep(_PAUSE_SECONDS)

    if kind == "java":
        await java_like(seen, run)
    else:
        await library(seen, run, watch=kind == "watch")
    say(json.dumps(asdict(seen)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
