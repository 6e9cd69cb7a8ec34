"""The HTTP ports of a running server, and the measurement of its event loop's lag.

Without the packages for the pages the server runs without HTTP ports, and logs `http_is_off` once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Final, NamedTuple

from namesrv.context import Namesrv, Spawn
from namesrv.histogram import Histogram
from namesrv.net.remoting_server import RemotingServer
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

LAG_INTERVAL_SECONDS: Final = 0.1
_PACKAGES: Final = ("prometheus_client", "starlette", "uvicorn")


class HttpAddresses(NamedTuple):
    """The bound addresses of the HTTP ports; empty for a port that is off."""

    pages: list[tuple[str, int]]
    name_servers: list[tuple[str, int]]


@asynccontextmanager
async def http_ports(namesrv: Namesrv, server: RemotingServer, spawn: Spawn) -> AsyncIterator[HttpAddresses]:
    """Serve the HTTP ports that are enabled, and yield their addresses; with at least one, measure the loop's lag.

    Raises OSError.
    """
    settings = namesrv.settings.current
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    is_wanted = bool(settings.http_listen or settings.name_servers_listen)
    if is_wanted and missing:
        event(
            logger, logging.WARNING, "http_is_off", missing=missing, install="pip install -r namesrv.txt of make dist"
        )
    if not is_wanted or missing:
        yield HttpAddresses([], [])
        return
    from namesrv.observability.discovery import Discovery  # noqa: PLC0415  # optional
    from namesrv.observability.http import HttpListener, name_servers_listener, pages_listener  # noqa: PLC0415

    async with AsyncExitStack() as stack:

        async def listen(listener: HttpListener, address: tuple[str, int] | None) -> list[tuple[str, int]]:
            if address is None:
                return []
            stack.push_async_callback(listener.close)
            return await listener.listen(*address)

        discovery = Discovery(namesrv)
        pages = await listen(pages_listener(namesrv, server, discovery), settings.http_address)
        name_servers = await listen(name_servers_listener(namesrv, discovery), settings.name_servers_address)
        lag = spawn(measure_lag(namesrv.counters.lag))
        stack.callback(lag.cancel)
        yield HttpAddresses(pages, name_servers)


async def measure_lag(histogram: Histogram) -> None:
    """Measure the lag of the running loop until cancelled.

    A late wake-up shows that all other work of that moment was as late, such as a response to a client, or a heartbeat
    that waited in its socket.
    """
    while True:
        # The time of uvloop stands still while a callback runs, so the monotonic clock is used.
        due = time.monotonic() + LAG_INTERVAL_SECONDS
        await asyncio.sleep(LAG_INTERVAL_SECONDS)
        histogram.observe(max(0.0, time.monotonic() - due))
