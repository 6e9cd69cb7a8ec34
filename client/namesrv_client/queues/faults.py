"""Brokers that sends failed on: how long each is left alone, and whether it can be reached again."""

import asyncio
from collections.abc import Callable
from typing import Final

from namesrv_client.settings import ClientSettings
from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock, timeout_on

# RocketMQ's tables from 5.1.4 on, and before: (latency from, left alone for), in milliseconds, largest first
_TABLES: Final = {
    "5": ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000)),
    "4": ((15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000)),
}
# the latency that a failure counts as
_ISOLATION_MS: Final = {"5": 10_000, "4": 30_000}
_PROBE_SECONDS: Final = 3.0
_PROBE_TIMEOUT_SECONDS: Final = 0.2


class BrokerFaults:
    """Which brokers are left alone after slow and failed sends. Any thread may report."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._clock = clock
        self.is_tolerant: Final = settings.fault_tolerance
        # without anybody who would find out that a broker is back, its pause has to be enough
        self._is_probed = settings.probe != "off"
        self._table = _TABLES[settings.fault_table]
        self._isolation_ms = _ISOLATION_MS[settings.fault_table]
        # broker -> until when (monotonic) it is left alone
        self._isolated: dict[str, float] = {}
        # brokers that nobody has reached since a send failed, in that order
        self._unreachable: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<BrokerFaults [{len(self._isolated)} isolated | {len(self._unreachable)} unreachable]>"

    def report(self, broker: str, latency_seconds: float, *, failed: bool) -> int:
        """Take in how a send went; for how many milliseconds the broker is left alone for it.

        A failure isolates, slowness does by the table, a quick success ends both. Nothing does without fault tolerance.
        """
        if not self.is_tolerant:
            return 0
        latency_ms = self._isolation_ms if failed else latency_seconds * 1000
        pause = next((pause for threshold, pause in self._table if latency_ms >= threshold), 0)
        if pause:
            # an isolation that runs is not made shorter by a slow answer, only by a good one
            until = self._clock.monotonic() + pause / 1000
            self._isolated[broker] = max(self._isolated.get(broker, until), until)
        else:
            self._isolated.pop(broker, None)
        if failed and self._is_probed:
            self._unreachable[broker] = None
        else:
            self.reached(broker)
        return pause

    def is_available(self, broker: str) -> bool:
        """Whether it is to be used."""
        return self.is_reachable(broker) and self._clock.monotonic() >= self._isolated.get(broker, 0.0)

    def is_reachable(self, broker: str) -> bool:
        """Whether it could be reached the last time somebody tried."""
        return broker not in self._unreachable

    def unreachable(self) -> list[str]:
        """Brokers that a probe should look at."""
        return list(self._unreachable)

    def reached(self, broker: str) -> None:
        """A probe got through."""
        self._unreachable.pop(broker, None)

    async def probe(self, master_of: Callable[[str], str | None]) -> None:
        """Try every 3 s to reach the brokers that could not be reached, until cancelled."""
        while True:
            await self._clock.sleep(_PROBE_SECONDS)
            await asyncio.gather(*(self._probe(broker, master_of(broker)) for broker in self.unreachable()))

    async def _probe(self, broker: str, address: str | None) -> None:
        if address is None:
            # nothing can be sent to it anyway
            self._isolated.pop(broker, None)
            self.reached(broker)
        elif await connects(address, self._clock):
            self.reached(broker)


async def connects(address: str, clock: Clock) -> bool:
    """Whether somebody takes a connection there in time."""
    try:
        host, port = parse_address(address)
        async with timeout_on(clock, _PROBE_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError):
        # a timeout is an OSError; a name that is none a UnicodeError, which is a ValueError
        return False
    writer.transport.abort()
    return True
