"""What the audit trail writes whole, and what it counts: windows of refusals, and of changes by registrations.

The first of a kind within ten seconds has a line of its own, so that noise of one peer hides nothing of another one and
pushes no older line out. All others are counted, and written when the window ends.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from namesrv.access.audit_lines import Change, Refusal, RepeatedChange
from namesrv.routeinfo.records import BrokerAddrInfo
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass

# A window; what is counted in one is written at its end.
WINDOW_SECONDS: Final = 10.0
# Different refusals with a line each, of one address (of IPv6, one /64 network) and of all. Those beyond are counted
# together, by reason and, for some addresses, by address.
MAX_DIFFERENT_PER_ADDRESS: Final = 20
MAX_DIFFERENT: Final = 100
MAX_COUNTED_ADDRESSES: Final = 50
# Changes of one source to one broker with a line each: a broker that stops and comes back has two.
MAX_CHANGES_PER_BROKER: Final = 3
# Lines about brokers of one source: the brokers of a large cluster may all come back at once. Further changes are
# counted by source, for some sources.
MAX_LINES_PER_SOURCE: Final = 1_000
MAX_COUNTED_SOURCES: Final = 50
_BROKER_REQUESTS: Final = {
    code.name
    for code in RequestCode
    if (about := REQUESTS.get(code)) and about.access_class is AccessClass.BROKER_CONTROL
}


class RefusalWindow:
    """Refusals of the current window."""

    def __init__(self) -> None:
        # by what makes refusals equal: the first one, and how many more there were
        self._refusals: dict[tuple[object, ...], tuple[Refusal, int]] = {}
        # address -> its different refusals
        self._different: Counter[str] = Counter()
        # refusals beyond the bounds, by reason and by address
        self._others: Counter[str] = Counter()
        self._others_by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._refusals)

    def admit(self, refusal: Refusal, address: str, network: str) -> bool:
        """True for a refusal that has a line of its own; all others are counted."""
        # One reason has many causes, and a peer may claim many identities: the remark tells them apart.
        key = (
            address,
            refusal.sender["account"],
            refusal.request,
            refusal.reason,
            refusal.remark,
            refusal.is_observed,
        )
        others = self._others_by_address
        if (counted := self._refusals.get(key)) is not None:
            first, more = counted
            self._refusals[key] = (first, more + 1)
        elif len(self._refusals) < MAX_DIFFERENT and self._different[network] < MAX_DIFFERENT_PER_ADDRESS:
            self._refusals[key] = (refusal, 0)
            self._different[network] += 1
            return True
        else:
            self._others[refusal.reason] += 1
            if network in others or len(others) < MAX_COUNTED_ADDRESSES:
                others[network] += 1
        return False

    def end(self) -> Iterator[Refusal | dict[str, Any]]:
        """The lines about what was counted; the next window begins."""
        for refusal, more in self._refusals.values():
            if more:
                yield refusal._replace(times=more, is_repeated=True)
        if self._others:
            counts = {"by_reason": dict(self._others), "by_address": dict(self._others_by_address)}
            yield {"event": "refusals", "count": self._others.total(), **counts}
        for window in (self._refusals, self._different, self._others, self._others_by_address):
            window.clear()


class RegistrationWindow:
    """Changes of brokers in the current window, by source (account, or network without one) and broker."""

    def __init__(self) -> None:
        # (source, broker) -> changes with a line of their own, and what was counted since
        self._brokers: dict[tuple[str, BrokerAddrInfo | None], int] = {}
        self._repeated: dict[tuple[str, BrokerAddrInfo | None], RepeatedChange] = {}
        # source -> lines, those at the end of the window among them
        self._lines: Counter[str] = Counter()
        # changes beyond the bounds, by source
        self._others: Counter[str] = Counter()
        self._others_in_all = 0

    def __len__(self) -> int:
        return len(self._brokers)

    def admit(self, change: Change, wall: float) -> bool:
        """True for a change that has a line of its own; all others are counted."""
        source = change.source
        key = source, broker_of(change)
        if self._brokers.get(key, 0) < MAX_CHANGES_PER_BROKER and self._lines[source] < MAX_LINES_PER_SOURCE:
            self._brokers[key] = self._brokers.get(key, 0) + 1
            self._lines[source] += 1
            return True
        if (repeated := self._repeated.get(key)) is not None:
            self._repeated[key] = RepeatedChange(change, repeated.times + 1, repeated.first_at, wall)
        elif self._lines[source] < MAX_LINES_PER_SOURCE:
            self._repeated[key] = RepeatedChange(change, 1, wall, wall)
            self._lines[source] += 1
        else:
            self._others_in_all += 1
            if source in self._others or len(self._others) < MAX_COUNTED_SOURCES:
                self._others[source] += 1
        return False

    def end(self) -> Iterator[RepeatedChange | dict[str, Any]]:
        """The lines about what was counted; the next window begins."""
        yield from self._repeated.values()
        if self._others_in_all:
            yield {"event": "changes", "count": self._others_in_all, "by_source": dict(self._others)}
        self._others_in_all = 0
        for window in (self._brokers, self._repeated, self._lines, self._others):
            window.clear()


def is_registration(change: Change) -> bool:
    """True for what brokers change, by their requests or by being silent or gone; else an operator changed it."""
    return change.request in _BROKER_REQUESTS or (change.request is None and broker_of(change) is not None)


def broker_of(change: Change) -> BrokerAddrInfo | None:
    """The broker that a change is about: a registration may displace other ones first."""
    brokers = [each.broker for each in change.changes if each.broker is not None]
    return brokers[-1][0] if brokers else None
