"""The HTTP port of a running server, and the measurement of its event loop's lag.

Without the packages for the pages the server runs without the HTTP port, and logs `http_is_off` once.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final

from namesrv.context import Namesrv
from namesrv.histogram import Histogram
from namesrv.net.listener import RemotingServer
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

LAG_INTERVAL_SECONDS: Final = 0.1
_PACKAGES: Final = ("prometheus_client", "starlette", "uvicorn")


@asynccontextmanager
async def http_port(namesrv: Namesrv, server: RemotingServer) -> AsyncIterator[list[tuple[str, int]]]:
    """Serve the HTTP port, if enabled, and measure the loop's lag; yields the addresses of the port. Raises OSError."""
    address = namesrv.settings.http_address
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if address is not None and missing:
        event(
            logger, logging.WARNING, "http_is_off", missing=missing, install="pip install -r namesrv.txt of make dist"
        )
    if address is None or missing:
        yield []
        return
    from namesrv.observability.http import HttpListener  # noqa: PLC0415  # optional
    from namesrv.observability.pages import application  # noqa: PLC0415

    tls = namesrv.certificates.https if namesrv.settings.http_tls else None
    listener = HttpListener(
        application(namesrv, server), namesrv.counters.http, tls=tls, read_shares=server.read_shares
    )
    addresses = await listener.listen(*address)
    lag = namesrv.spawn(measure_lag(namesrv.counters.lag))
    try:
        yield addresses
    finally:
        lag.cancel()
        await listener.close()


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
