"""Input that has arrived in sockets: it is read before a broker is judged, since it may have the broker's heartbeat."""

import asyncio
from dataclasses import dataclass
from typing import Final

from namesrv.net.fairness.fair_scheduler import FairScheduler
from namesrv.net.fairness.read_shares import ReadShares
from namesrv_runtime.clock import Clock

# Iterations of the event loop before brokers are judged, each of which reads all readable sockets: one to accept a
# connection, two until it is read, one to read it, two for a request to the dispatcher, and as many in reserve. Where
# input waits for the share of its network, a round of all waiting networks takes the place of an iteration.
_PASSES: Final = 12
# Further iterations for a request that waits for fair scheduling.
_CARRYING_OUT_PASSES: Final = 4
# A loop with slow iterations or rounds was busy, not stopped, and has read its sockets all the time: it needs no
# reserve, and waits for no further round.
_BUSY_PASSES: Final = 6
_BUSY_SECONDS: Final = 0.5
# An idle loop reads its sockets in less time. Registrations may have arrived during a longer computation, so the
# sockets are read once more before brokers of a closed connection are removed: only once, since a busy loop may be slow
# all the time.
_QUICK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class ArrivedInput:
    """Input that has arrived in the sockets of a server, and the requests in it."""

    clock: Clock
    read_shares: ReadShares
    scheduler: FairScheduler

    async def handle(self) -> None:
        """Read all arrived bytes, and handle the requests in them."""
        ends = self.clock.monotonic() + _BUSY_SECONDS
        passes = 0
        while passes < (_PASSES if self.clock.monotonic() <= ends else _BUSY_PASSES):
            await asyncio.sleep(0)
            if not self.read_shares.left_in_round or self.clock.monotonic() > ends:
                passes += 1
        # Some requests wait for fair scheduling to begin, and then need iterations until they are handled.
        for _ in range(2):
            if self.scheduler:
                await self.scheduler.begin()
                for _ in range(_CARRYING_OUT_PASSES):
                    await asyncio.sleep(0)

    async def handle_before_removal(self) -> None:
        """Handle arrived input, wait for fair scheduling, and handle input that may have arrived meanwhile."""
        began = self.clock.monotonic()
        await self.handle()
        await self.scheduler.begin()
        if self.clock.monotonic() - began > _QUICK_SECONDS:
            await self.handle()
