"""An application that pulls the route of a topic continuously and reports its results.

python application.py poll|watch|java BROKERS

`poll` and `watch` use the client library; `java` behaves like Apache's Java client: JSON over one connection to one
server of the list, and the next server once that connection is dead. The servers are those of NAMESRV_ADDR, for the
library those of NAME_SERVERS, which may be a file. It prints `asks SERVER` for every new server, `ready` after a
complete route (one with that many brokers), and at SIGTERM, as its last line, a JSON object with its counts.
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
# ends the application if a killed test never does
_LONGEST_SECONDS: Final = 600.0
# ten times Java's mqClientApiTimeout: on a busy machine a request may take seconds
_TIMEOUT_SECONDS: Final = 30.0


def print_line(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Seen:
    """Results of all pulls."""

    pulls: int = 0
    # pulls without a route, with the reason
    failed: list[str] = field(default_factory=list)
    # brokers of incomplete routes
    incomplete: list[list[str]] = field(default_factory=list)
    # repeated requests, with the reason
    repeated: list[str] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0

    def server(self, address: str | None) -> None:
        """Record a new server."""
        if address is not None and (not self.servers or self.servers[-1] != address):
            self.servers.append(address)
            print_line(f"asks {address}")


class LostError(Exception):
    """The connection ended, or no response arrived in time; the message has the reason."""


class JavaLike:
    """One connection to the chosen server; after its death the next request uses the next server of the list."""

    def __init__(self, addresses: list[str], seen: Seen) -> None:
        # shuffled once, as Java does
        self._addresses = itertools.cycle(random.sample(addresses, len(addresses)))
        self._seen = seen
        self._peer: RawPeer | None = None

    async def pull(self) -> list[str]:
        """The brokers of the topic; raises LostError when the request failed, and the next one uses the next server."""
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
        # a connection closed by the server is noticed before its use
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
    """Pull; a failed pull is repeated once, as at Java's next poll, and counts if it fails again."""
    client = JavaLike(os.environ["NAMESRV_ADDR"].split(";"), seen)

    async def pull() -> list[str]:
        try:
            return await client.pull()
        except LostError as error:
            seen.repeated.append(str(error))
            return await client.pull()

    await run(pull)


async def library(seen: Seen, run: "Run", *, watch: bool) -> None:
    """Pull from the library: the cached route and a fresh one, both of which must be complete."""
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
                print_line("ready")
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
    print_line(json.dumps(asdict(seen)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
