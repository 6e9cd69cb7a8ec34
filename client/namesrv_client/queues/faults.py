"""Brokers that sends failed on: how long each is left alone, and whether it can be reached again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from namesrv_runtime.address import parse_address
from namesrv_runtime.clock import Clock
from namesrv_runtime.timeouts import timeout_on

# (latency from, left alone for), both in milliseconds, largest first
FAULT_TABLE_5: Final = (
    (15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (100, 0), (50, 0),
)  # fmt: skip
FAULT_TABLE_4: Final = (
    (15_000, 600_000), (3_000, 180_000), (2_000, 120_000), (1_000, 60_000), (550, 30_000), (100, 0), (50, 0),
)  # fmt: skip
_TABLES: Final = {"5": FAULT_TABLE_5, "4": FAULT_TABLE_4}
# the latency that a failure counts as
_ISOLATION_MS: Final = {"5": 10_000, "4": 30_000}


@dataclass(slots=True)
class FaultItem:
    """What is known of one broker."""

    latency_ms: float
    # monotonic seconds
    available_at: float
    is_reachable: bool = True


class FaultStrategy:
    """Latencies and failures by broker; time is passed in, in monotonic seconds."""

    def __init__(self, table: Literal["5", "4"] = "5") -> None:
        self._table = _TABLES[table]
        self._isolation_ms = _ISOLATION_MS[table]
        self._items: dict[str, FaultItem] = {}

    def __repr__(self) -> str:
        return f"<FaultStrategy [{len(self._items)} brokers]>"

    def pause_ms(self, latency_ms: float) -> int:
        """How long a broker with that latency is left alone."""
        for threshold, pause in self._table:
            if latency_ms >= threshold:
                return pause
        return 0

    def report(self, broker: str, latency_ms: float, now: float, *, failed: bool, is_reachable: bool = True) -> int:
        """Take in how a send went; for how many milliseconds the broker is left alone for it.

        A failure isolates, slowness does by the table, a quick success ends both.
        """
        pause = self.pause_ms(self._isolation_ms if failed else latency_ms)
        known = self._items.get(broker)
        if known is None:
            if pause == 0 and is_reachable:
                return pause
            known = self._items[broker] = FaultItem(latency_ms, now)
        known.latency_ms = latency_ms
        known.is_reachable = is_reachable
        # an isolation that runs is not made shorter by a slow answer, only by a good one
        known.available_at = max(known.available_at, now + pause / 1000) if pause else now
        return pause

    def is_available(self, broker: str, now: float) -> bool:
        """Whether it is to be used."""
        known = self._items.get(broker)
        return known is None or (known.is_reachable and now >= known.available_at)

    def is_reachable(self, broker: str) -> bool:
        """Whether it could be reached the last time somebody tried."""
        known = self._items.get(broker)
        return known is None or known.is_reachable

    def unreachable(self) -> list[str]:
        """Brokers that a probe should look at."""
        # copied first: threads may report meanwhile
        return [broker for broker, item in list(self._items.items()) if not item.is_reachable]

    def reached(self, broker: str) -> None:
        """A probe got through."""
        known = self._items.get(broker)
        if known is not None:
            known.is_reachable = True

    def remove(self, broker: str) -> None:
        """Forget a broker."""
        self._items.pop(broker, None)


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
