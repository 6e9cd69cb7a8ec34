"""Fair scheduling of reads: how much input of each peer address is processed in one iteration of the event loop.

Input of a peer address that has used up its share of an iteration waits for a later iteration; in between, the loop
serves all other sockets. In each iteration the waiting addresses continue in turn, up to a limit for the cost of their
input together: the more addresses wait, the longer each of them waits, while the delay of all other addresses stays the
same. A peer address is `Peer.network`; costs.py has the costs of input.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

# Cost of all addresses together in one iteration, about 1.5 ms: 256 reads with a request of the fast path each, or one
# read with 500 of them.
ITERATION_COST: Final = 64 * 1024
# The least share of an address, however many addresses are active.
LEAST_SHARE: Final = 4 * 1024
# Cost of all waiting input together in one iteration, about 0.2 ms, so that a flood makes iterations hardly longer: a
# request that arrives during an iteration is read in the next one.
WAITING_COST: Final = ITERATION_COST // 8
# A connection may use at least this much of its address's share before other connections of the address are read.
_LEAST_READ: Final = 4 * 1024

# The callbacks of each address of which no connection waits; never changed. An empty deque for each address would take
# 760 bytes of memory.
_NO_CALLBACKS: Final[deque[Callable[[], None]]] = deque()


class ReadShares:
    """The shares of all peer addresses of a process, renewed in each iteration of the loop that reads anything."""

    def __init__(self, count_requests: "Callable[[AddressShare], None] | None" = None) -> None:
        # called once the fast path has answered `count_at` requests of an address, and when its last connection closes
        self.count_requests = count_requests
        # address -> share; only addresses with an open connection have one
        self._shares: dict[str, AddressShare] = {}
        # shares that are used in this iteration
        self._active: list[AddressShare] = []
        # shares with connections that wait for a later iteration, in the order in which they continue
        self._waiting: OrderedDict[AddressShare, None] = OrderedDict()
        # number of waiting addresses that continue in this round; addresses that wait later continue in the next round
        self.left_in_round = 0
        # number of addresses that were active, or waited, in the last iteration
        self._expected = 0
        self._is_renewal_due = False

    def __repr__(self) -> str:
        return f"<ReadShares [{len(self._shares)} addresses | {len(self._waiting)} waiting]>"

    def enter(self, address: str) -> "AddressShare":
        """The share of an address, for one more connection; the connection calls `leave` when it is closed."""
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = AddressShare(self, address)
        share.connections += 1
        return share

    def leave(self, share: "AddressShare") -> None:
        """Remove a connection from the share of its address."""
        share.connections -= 1
        if not share.connections:
            if share.uncounted:
                # The next connection of the address begins with a new share; these requests count for the quota, too.
                share.count_requests()
            del self._shares[share.address]

    def activate(self, share: "AddressShare") -> int:
        """Mark an address as active in this iteration, and return the cost that it may use."""
        self._active.append(share)
        self._renew_later()
        return max(LEAST_SHARE, ITERATION_COST // max(self._expected, len(self._active)))

    def add_waiting(self, share: "AddressShare") -> None:
        """Schedule the waiting connections of an address, after those of the addresses that wait already."""
        self._waiting[share] = None
        self._renew_later()

    def _renew_later(self) -> None:
        if not self._is_renewal_due:
            self._is_renewal_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewal_due = False
        self._expected = max(len(self._active), len(self._waiting))
        for share in self._active:
            share.is_active = False
        self._active.clear()
        # A round may take several iterations. Addresses that wait again meanwhile continue in the next round.
        if not self.left_in_round:
            self.left_in_round = len(self._waiting)
        left = WAITING_COST
        while self.left_in_round and left > 0:
            self.left_in_round -= 1
            share, _ = self._waiting.popitem(last=False)
            left -= share.continue_waiting()
        if self._waiting:
            self._renew_later()


class AddressShare:
    """The rest of one peer address's share of this iteration, and its connections that wait for a later one."""

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
        # True from the first use of the share in an iteration until the iteration ends; `left` is valid only then
        self.is_active = False
        # the cost that is left in this iteration; below 0 after a frame that cost more than was left
        self.left = 0
        # number of fast-path requests not yet counted for the quota, and the number at which they are counted
        self.uncounted = 0
        self.count_at = 1
        # False once a quota is used up: the next request goes to the dispatcher, which counts it before the response.
        self.may_use_fast_path = True
        # True if quotas are observed and not enforced: once a quota is used up, only one request goes to the dispatcher
        self.is_only_observed = False
        self._shares = shares
        # callbacks that continue the waiting connections
        self._waiting = _NO_CALLBACKS

    def __repr__(self) -> str:
        return f"<AddressShare {self.address} [{self.left} left | {len(self._waiting)} waiting]>"

    def activate(self) -> None:
        """Activate this share for the current iteration."""
        self.is_active = True
        self.left = self._shares.activate(self)

    def spend(self, cost: int) -> bool:
        """Subtract the cost of input; True if the share is not used up."""
        if not self.is_active:
            self.activate()
        self.left -= cost
        return self.left > 0

    def count_requests(self) -> None:
        """Count the fast-path requests since the last call for the quota."""
        if self._shares.count_requests is not None:
            self._shares.count_requests(self)

    def stop_at(self) -> int:
        """The value of `left` at which the current connection waits, since other connections of the address are due."""
        if not self._waiting:
            return 0
        return max(0, self.left - max(_LEAST_READ, self.left // (len(self._waiting) + 1)))

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in a later iteration, when it is the turn of this address and its share is not used up."""
        if self._waiting is _NO_CALLBACKS:
            self._waiting = deque()
        self._waiting.append(read_on)
        self._shares.add_waiting(self)

    def continue_waiting(self) -> int:
        """Call each waiting connection once, until the share is used up; return the cost of their input."""
        if not self.is_active:
            self.activate()
        before = self.left
        for _ in range(len(self._waiting)):
            if self.left <= 0:
                break
            self._waiting.popleft()()
        if self._waiting:
            self._shares.add_waiting(self)
        else:
            self._waiting = _NO_CALLBACKS
        return before - self.left
