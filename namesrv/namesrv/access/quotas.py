"""Quotas on requests per second, of one address and of all addresses.

Quotas are token buckets. Requests of a lower rank leave a part of each bucket to higher ranks: with any state of the
buckets, liveness is not refused before reads, and reads are not refused before administration. Requests beyond the
quota wait first: a Java client waits three seconds for a response and repeats a refused request only after 30 s.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from namesrv.access.guard import AccessGuard, RefusalListener
from namesrv.net.fairness.read_shares import NetworkShare
from namesrv.net.request import Request
from namesrv.settings.limits import RequestQuotas
from namesrv_remoting.errors import ResponseError, SystemBusyError
from namesrv_remoting.requests import REQUESTS, AccessClass
from namesrv_runtime.clock import Clock

# A bucket holds the tokens of this time: clients that start together may send requests at once.
BURST_SECONDS: Final = 10.0
# The longest wait is well below the three seconds for which Java's clients wait for a response.
MAX_WAIT_SECONDS: Final = 1.0
# A bucket of a quiet address is full again, and is dropped when the number of buckets has doubled.
_LEAST_SWEEP: Final = 1024


class Rank(IntEnum):
    """Ranks of requests; higher ranks (lower numbers) are refused later."""

    LIVENESS = 0
    READ = 1
    ADMINISTRATION = 2


# Share of a bucket that a rank leaves to higher ranks; larger than the overdraft of waiting requests of that rank.
RESERVES: Final = {Rank.LIVENESS: 0.0, Rank.READ: 0.25, Rank.ADMINISTRATION: 0.5}
# Requests of one address on the fast path that are counted together while the buckets have tokens.
_COUNTED_TOGETHER: Final = 64
# All other access classes have the rank of administration.
_RANKS: Final[Mapping[str, Rank]] = {
    AccessClass.BROKER_CONTROL: Rank.LIVENESS,
    AccessClass.ROUTE_READ: Rank.READ,
    # Agents and clients send these requests first.
    AccessClass.ANY_ACCOUNT: Rank.READ,
}


@dataclass(slots=True)
class Bucket:
    """Tokens at a moment; the number is negative while requests wait for future tokens."""

    tokens: float
    at: float
    # Requests of the fast path without a token that are not in the metric yet.
    excess: int = 0

    def spare(self, rate: float) -> float:
        """Return the tokens that reads may take without waiting."""
        return self.tokens - RESERVES[Rank.READ] * rate * BURST_SECONDS

    def refill(self, now: float, rate: float, burst: float) -> None:
        """Add the tokens earned since the last refill, up to a burst."""
        self.tokens = min(burst, self.tokens + max(0.0, now - self.at) * rate)
        self.at = now

    def wait_seconds(self, rank: Rank, rate: float) -> float:
        """Return the seconds that a request of this rank has to wait for its token."""
        return max(0.0, 1.0 + RESERVES[rank] * rate * BURST_SECONDS - self.tokens) / rate


@dataclass(kw_only=True, slots=True)
class RequestLimiter:
    """Admits requests while the token buckets last."""

    quotas: RequestQuotas
    clock: Clock
    on_refused: RefusalListener | None
    # Requests beyond a quota, by class, reason and outcome, for metrics.
    exceeded: Counter[tuple[str, str, str]] = field(default_factory=Counter, init=False)
    _all: Bucket = field(init=False)
    _by_network: dict[str, Bucket] = field(default_factory=dict, init=False)
    _sweep_at: int = field(default=_LEAST_SWEEP, init=False)

    def __post_init__(self) -> None:
        """Start with a full bucket."""
        self._all = Bucket(self.quotas.all_per_second * BURST_SECONDS, self.clock.monotonic())

    def __repr__(self) -> str:
        return f"<RequestLimiter [{self.quotas.mode} | {len(self._by_network)} networks | {self._all.tokens:.0f} left]>"

    async def admit(self, request: Request, guard: AccessGuard | None) -> Request:
        """Let the guard judge a request, and wait for a token.

        Raises:
            SystemBusyError: too many requests come.
            ResponseError: the guard refuses the request.
        """
        about = REQUESTS.get(request.command.code)
        name = "none" if about is None else about.access_class.value
        try:
            admitted = request if guard is None else await guard(request)
        except ResponseError:
            # Refused requests take tokens of the lowest rank: unknown peers must not use up the share of higher ranks.
            await self._take(request, name, Rank.ADMINISTRATION)
            raise
        has_waited = await self._take(request, name, _RANKS.get(name, Rank.ADMINISTRATION))
        # The access file may have changed during the wait, or the account may have expired.
        return await guard.judge_again(admitted) if has_waited and guard is not None else admitted

    async def _take(self, request: Request, name: str, rank: Rank) -> bool:
        """Take a token; True if the request had to wait for it."""
        mode, share = self.quotas.mode, request.connection.read_share
        if mode == "off":
            # A reload may have ended the quota that an address has used up.
            share.may_use_fast_path = True
            return False
        seconds, reason = self.draw(request.connection.peer.network, rank)
        if seconds > MAX_WAIT_SECONDS:
            if mode == "observe":
                self._note_excess(request, name, reason)
            self._refuse(request, name, reason, is_refused=mode == "enforce")
        elif seconds and mode == "enforce":
            self.exceeded[name, reason, "delayed"] += 1
            await self.clock.sleep(seconds)
            return True
        if not seconds:
            share.may_use_fast_path = True
        return False

    def draw(self, network: str, rank: Rank) -> tuple[float, str]:
        """Return the wait of a request and the quota that causes it; a wait above MAX_WAIT_SECONDS takes no token."""
        everybody, mine = self._refilled(network)
        seconds, reason = max(
            (everybody.wait_seconds(rank, self.quotas.all_per_second), "requests"),
            (mine.wait_seconds(rank, self.quotas.ip_per_second), "requests_per_ip"),
        )
        if seconds <= MAX_WAIT_SECONDS:
            everybody.tokens -= 1
            mine.tokens -= 1
        return seconds, reason

    def count(self, share: NetworkShare) -> None:
        """Take tokens for the requests of an address that the fast path has answered.

        While a bucket has too few tokens, each request of the address goes to the dispatcher, which knows its rank;
        with an observed quota only the next request does, and represents the answered ones.
        """
        count, share.uncounted = share.uncounted, 0
        if self.quotas.mode == "off":
            share.may_use_fast_path, share.count_at = True, _COUNTED_TOGETHER
            return
        everybody, mine = self._refilled(share.network)
        spare = min(everybody.spare(self.quotas.all_per_second), mine.spare(self.quotas.ip_per_second))
        taken = max(0.0, min(spare, count))
        everybody.tokens -= taken
        mine.tokens -= taken
        mine.excess += int(count - taken)
        spare -= taken
        share.may_use_fast_path = spare >= 1
        share.is_only_observed = self.quotas.mode == "observe"
        share.count_at = min(_COUNTED_TOGETHER, int(spare)) if spare >= 1 else _COUNTED_TOGETHER

    def _note_excess(self, request: Request, name: str, reason: str) -> None:
        """Count the fast path's responses beyond the quota under the class of this request."""
        mine = self._by_network[request.connection.peer.network]
        self.exceeded[name, reason, "observed"] += mine.excess
        mine.excess = 0

    def _refuse(self, request: Request, name: str, reason: str, *, is_refused: bool) -> None:
        self.exceeded[name, reason, "refused" if is_refused else "observed"] += 1
        quotas = self.quotas
        of = "all addresses" if reason == "requests" else "one address"
        limit = quotas.all_per_second if reason == "requests" else quotas.ip_per_second
        remark = f"too many requests from {of}, limit {limit} a second; try again later"
        if self.on_refused is not None:
            self.on_refused(request, remark, reason=f"quota_{reason}", observed=not is_refused)
        if is_refused:
            raise SystemBusyError(remark)

    def _refilled(self, network: str) -> tuple[Bucket, Bucket]:
        """Return the bucket of all addresses and the bucket of one address, refilled until now."""
        now, rate = self.clock.monotonic(), self.quotas.ip_per_second
        self._all.refill(now, self.quotas.all_per_second, self.quotas.all_per_second * BURST_SECONDS)
        mine = self._by_network.get(network)
        if mine is None:
            if len(self._by_network) >= self._sweep_at:
                self._sweep(now)
            mine = self._by_network[network] = Bucket(rate * BURST_SECONDS, now)
        else:
            mine.refill(now, rate, rate * BURST_SECONDS)
        return self._all, mine

    def _sweep(self, now: float) -> None:
        for network, bucket in list(self._by_network.items()):
            if now - bucket.at >= BURST_SECONDS + MAX_WAIT_SECONDS:
                # After this time the bucket is full again from any state.
                del self._by_network[network]
        self._sweep_at = max(_LEAST_SWEEP, 2 * len(self._by_network))
