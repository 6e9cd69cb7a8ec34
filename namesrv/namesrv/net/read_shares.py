"""Fair scheduling of reads: what each peer address may have processed in one iteration of the event loop.

Everything that a peer sends counts, whatever its response: one-way requests, frames that are ignored, TLS records
without data. A peer address that has used up its share of an iteration is read on in the next one; in between the loop
serves all other sockets. A cost is a number of bytes and not a time, so that the same input is always cut in the same
places.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# What all addresses together may have processed in an iteration: 256 requests of the fast path, about 1.5 ms.
ITERATION_COST: Final = 64 * 1024
# The share of an address when very many are active.
LEAST_SHARE: Final = 4 * 1024
# What one connection has processed at a time while others of its address wait.
_LEAST_TURN: Final = 4 * 1024

# Costs beside the bytes, in proportion to processor time. A fast-path request takes about 6 microseconds.
FAST_FRAME_COST: Final = 256
DISPATCHED_FRAME_COST: Final = 1024
# OpenSSL takes about 10 microseconds for a KeyUpdate record of 27 bytes.
TLS_RECORD_COST: Final = 512
# The longest read, by uvloop's buffer, and its cost if it is only copied, or dropped.
LONGEST_READ_BYTES: Final = 256 * 1024
COPIED_READ_COST: Final = 8 * 1024


class ReadShares:
    """The shares of all peer addresses of a process, renewed in each iteration of the loop that reads anything."""

    def __init__(self, count_requests: "Callable[[AddressShare], None] | None" = None) -> None:
        # called when an address has had as many requests answered on the fast path as its `count_at` says
        self.count_requests = count_requests
        # address -> its share, as long as one of its connections is open
        self._shares: dict[str, AddressShare] = {}
        # shares that were used in this iteration
        self._active: list[AddressShare] = []
        # shares with connections that wait for the next iteration, in order
        self._waiting: dict[AddressShare, None] = {}
        # addresses that were active in the last iteration
        self._expected = 0
        self._is_renewal_due = False

    def __repr__(self) -> str:
        return f"<ReadShares [{len(self._shares)} addresses | {len(self._waiting)} waiting]>"

    def enter(self, address: str) -> "AddressShare":
        """The share of an address, for one more connection; `leave` ends it."""
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = AddressShare(self, address)
        share.connections += 1
        return share

    def leave(self, share: "AddressShare") -> None:
        """End a connection's use of its address's share."""
        share.connections -= 1
        if not share.connections:
            del self._shares[share.address]

    def activate(self, share: "AddressShare") -> int:
        """Add an address to those of this iteration, and return its share."""
        self._active.append(share)
        self._renew_later()
        return max(LEAST_SHARE, ITERATION_COST // max(self._expected, len(self._active)))

    def add_waiting(self, share: "AddressShare") -> None:
        """Let the waiting connections of an address continue in the next iteration."""
        self._waiting[share] = None
        self._renew_later()

    def _renew_later(self) -> None:
        if not self._is_renewal_due:
            self._is_renewal_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewal_due = False
        self._expected = len(self._active)
        for share in self._active:
            share.is_active = False
        self._active.clear()
        waiting, self._waiting = self._waiting, {}
        for share in waiting:
            share.continue_waiting()


class AddressShare:
    """What one peer address may still have processed in this iteration, and its connections that wait for the next."""

    __slots__ = (
        "_shares",
        "_waiting",
        "address",
        "connections",
        "count_at",
        "is_active",
        "is_only_observed",
        "left",
        "may_use_fast_path",
        "uncounted",
    )

    def __init__(self, shares: ReadShares, address: str) -> None:
        self.address = address
        # open connections that use this share
        self.connections = 0
        # True from the first use in an iteration to its end; `left` has a meaning only then
        self.is_active = False
        # what may still be processed in this iteration; below 0 after a frame that cost more
        self.left = 0
        # requests that were answered on the fast path, and that no quota has counted; how many of them there may be
        self.uncounted = 0
        self.count_at = 1
        # False if the next request goes to the dispatcher, which counts it before it is answered: a quota is used up.
        self.may_use_fast_path = True
        # True if that holds for one request only, since quotas are observed and not enforced
        self.is_only_observed = False
        self._shares = shares
        # what continues the waiting connections
        self._waiting: deque[Callable[[], None]] = deque()

    def __repr__(self) -> str:
        return f"<AddressShare {self.address} [{self.left} left | {len(self._waiting)} waiting]>"

    def activate(self) -> None:
        """Begin this address's use of the iteration."""
        self.is_active = True
        self.left = self._shares.activate(self)

    def spend(self, cost: int) -> bool:
        """Count the cost of input; True if the address has something left."""
        if not self.is_active:
            self.activate()
        self.left -= cost
        return self.left > 0

    def count_requests(self) -> None:
        """Have the requests counted that were answered on the fast path since the last time."""
        if self._shares.count_requests is not None:
            self._shares.count_requests(self)

    def turn_end(self) -> int:
        """The value of `left` at which the connection that is read now has to wait."""
        if not self._waiting:
            return 0
        return max(0, self.left - max(_LEAST_TURN, self.left // (len(self._waiting) + 1)))

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in the next iteration in which this address has something left."""
        self._waiting.append(read_on)
        self._shares.add_waiting(self)

    def continue_waiting(self) -> None:
        """Let each waiting connection read on once, as long as something is left."""
        if not self.is_active:
            self.activate()
        for _ in range(len(self._waiting)):
            if self.left <= 0:
                break
            self._waiting.popleft()()
        if self._waiting:
            self._shares.add_waiting(self)
