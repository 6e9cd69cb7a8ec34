"""Fair scheduling of reads: how much input of each network is processed in one iteration of the event loop.

Input of a network that has used up its share of an iteration waits for a later iteration; in between, the loop serves
all other sockets. In each iteration the waiting networks continue in turn, up to a limit for the cost of their input
together: the more networks wait, the longer each of them waits, while the delay of all other networks stays the same.
A network is `Peer.network`: an IPv4 address, or the /64 of an IPv6 address. costs.py has the costs of input.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

# Cost of all networks together in one iteration, about 1.5 ms: 256 reads with a request of the fast path each, or one
# read with 500 of them.
ITERATION_COST: Final = 64 * 1024
# The least share of a network, however many networks are active.
LEAST_SHARE: Final = 4 * 1024
# Cost of all waiting input together in one iteration, about 0.2 ms, so that a flood makes iterations hardly longer: a
# request that arrives during an iteration is read in the next one.
WAITING_COST: Final = ITERATION_COST // 8
# A connection may use at least this much of its network's share before other connections of the network are read.
_LEAST_READ: Final = 4 * 1024

# The callbacks of each network of which no connection waits; never changed. An empty deque for each network would take
# 760 bytes of memory.
_NO_CALLBACKS: Final[deque[Callable[[], None]]] = deque()


class ReadShares:
    """The shares of all networks of a process, renewed in each iteration of the loop that reads anything."""

    def __init__(self, count_requests: "Callable[[NetworkShare], None] | None" = None) -> None:
        # called once the fast path has answered `count_at` requests of a network, and when its last connection closes
        self.count_requests = count_requests
        # network -> share; only networks with an open connection have one
        self._shares: dict[str, NetworkShare] = {}
        # shares that are used in this iteration
        self._active: list[NetworkShare] = []
        # shares with connections that wait for a later iteration, in the order in which they continue
        self._waiting: OrderedDict[NetworkShare, None] = OrderedDict()
        # number of waiting networks that have yet to continue in this round; networks that begin to wait during the
        # round continue in the next one
        self.left_in_round = 0
        # the number of active networks in the last iteration, or that of waiting networks if more waited
        self._expected = 0
        self._is_renewal_due = False

    def __repr__(self) -> str:
        return f"<ReadShares [{len(self._shares)} networks | {len(self._waiting)} waiting]>"

    def enter(self, network: str) -> "NetworkShare":
        """The share of a network, for one more user; the user calls `leave` when its connection is closed."""
        share = self._shares.get(network)
        if share is None:
            share = self._shares[network] = NetworkShare(self, network)
        share.users += 1
        return share

    def leave(self, share: "NetworkShare") -> None:
        """Remove a user from the share of its network."""
        share.users -= 1
        if not share.users:
            if share.uncounted:
                # The next connection of the network begins with a new share; these requests count for the quota, too.
                share.count_requests()
            del self._shares[share.network]

    def activate(self, share: "NetworkShare") -> int:
        """Mark a network as active in this iteration, and return the cost that it may use."""
        self._active.append(share)
        self._renew_later()
        return max(LEAST_SHARE, ITERATION_COST // max(self._expected, len(self._active)))

    def add_waiting(self, share: "NetworkShare") -> None:
        """Schedule the waiting connections of a network, after those of the networks that wait already."""
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
        # A round may take several iterations. Networks that wait again meanwhile continue in the next round.
        if not self.left_in_round:
            self.left_in_round = len(self._waiting)
        left = WAITING_COST
        while self.left_in_round and left > 0:
            self.left_in_round -= 1
            share, _ = self._waiting.popitem(last=False)
            left -= share.continue_waiting()
        if self._waiting:
            self._renew_later()


class NetworkShare:
    """The rest of one network's share of this iteration, and its connections that wait for a later one."""

    __slots__ = (
        "_shares",
        "_waiting",
        "count_at",
        "is_active",
        "is_only_observed",
        "left",
        "may_use_fast_path",
        "network",
        "uncounted",
        "users",
    )

    def __init__(self, shares: ReadShares, network: str) -> None:
        self.network = network
        # number of users of this share: each open connection, and the TLS transport of each connection with TLS
        self.users = 0
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
        return f"<NetworkShare {self.network} [{self.left} left | {len(self._waiting)} waiting]>"

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
        """The value of `left` at which the current connection has to wait.

        0 is the end of the share; a higher value leaves a part to connections of the network that wait already.
        """
        if not self._waiting:
            return 0
        return max(0, self.left - max(_LEAST_READ, self.left // (len(self._waiting) + 1)))

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call `read_on` in a later iteration, when it is the turn of this network and its share is not used up."""
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
