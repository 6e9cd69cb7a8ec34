"""Can a broker be reached again?

RocketMQ's detector (section 2.5 of the client reference): every 3 s, 200 ms for each broker. It asks for an offset;
here it is enough that the master takes a connection, whatever it speaks.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from namesrv_client.fault_strategy import FaultStrategy
from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock
from namesrv_runtime.timeouts import timeout_on

PROBE_SECONDS: Final = 3.0
PROBE_TIMEOUT_SECONDS: Final = 0.2


class ReachabilityProbe:
    """Looks after the brokers that could not be reached."""

    def __init__(self, faults: FaultStrategy, clock: Clock, master_of: Callable[[str], str | None]) -> None:
        self._faults = faults
        self._clock = clock
        self._master_of = master_of

    def __repr__(self) -> str:
        return f"<ReachabilityProbe [{self._faults!r}]>"

    async def run(self) -> None:
        """Probe every 3 s until cancelled."""
        while True:
            await self._clock.sleep(PROBE_SECONDS)
            await asyncio.gather(*(self.probe(broker) for broker in self._faults.unreachable()))

    async def probe(self, broker: str) -> None:
        """Try once. A broker without a master's address is forgotten: nothing can be sent to it anyway."""
        address = self._master_of(broker)
        if address is None:
            self._faults.remove(broker)
        elif await connects(address, self._clock):
            self._faults.reached(broker)


async def connects(address: str, clock: Clock) -> bool:
    """Whether somebody takes a connection there in time."""
    try:
        host, port = parse_address(address)
        async with timeout_on(clock, PROBE_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError):
        # a timeout is an OSError; a name that is none a UnicodeError, which is a ValueError
        return False
    writer.transport.abort()
    return True
