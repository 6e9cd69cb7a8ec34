"""An application that pulls the route of a topic continuously and reports its results.

python application.py poll|watch BROKERS

The client library polls or watches the servers of NAME_SERVERS, which may be a file. The application prints
`asks SERVER` for every new server, `ready` after a complete route (one with that many brokers), and at SIGTERM, as its
last line, a JSON object with its counts.
"""

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from namesrv_client import ClientSettings, RouteClient, RouteError

TOPIC: Final = "orders"
_PAUSE_SECONDS: Final = 0.02
# Ends the application of a killed test.
_LONGEST_SECONDS: Final = 600.0
# On a busy machine a request may take seconds.
_TIMEOUT_SECONDS: Final = 30.0


def print_line(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Seen:
    """Counters of all pulls."""

    pulls: int = 0
    # Pulls without a route, with the reason.
    failed: list[str] = field(default_factory=list)
    # Brokers of incomplete routes.
    incomplete: list[list[str]] = field(default_factory=list)
    servers: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0

    def server(self, address: str | None) -> None:
        """Record a new server."""
        if address is not None and (not self.servers or self.servers[-1] != address):
            self.servers.append(address)
            print_line(f"asks {address}")


async def main(kind: str, brokers: int) -> None:
    """Pull until SIGTERM: cached and fresh routes must both be complete."""
    seen, ended = Seen(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    settings = ClientSettings(
        name_servers=os.environ["NAME_SERVERS"],
        watch=kind == "watch",
        poll_seconds=1.0,
        refresh_seconds=0.5,
        attempt_timeout_seconds=10.0,
        connect_timeout_seconds=10.0,
        call_timeout_seconds=_TIMEOUT_SECONDS,
    )
    is_ready = False
    deadline = time.monotonic() + _LONGEST_SECONDS
    async with RouteClient(settings) as client:
        while not ended.is_set() and time.monotonic() < deadline:
            began, found = time.monotonic(), list[str]()
            try:
                remembered = await client.route(TOPIC)
                asked = remembered if settings.watch else await client.route(TOPIC, max_stale=0.0)
                seen.server(client.chosen_server)
                found = sorted(remembered.brokers.keys() & asked.brokers.keys())
            except RouteError as error:
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
    print_line(json.dumps(asdict(seen)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
