"""Windows of ten seconds in which the audit trail counts repeated refusals and changes by registrations.

The first refusal or change of a kind in a window has a line of its own, so that noise of one peer hides no line of
another peer and displaces no older line. Further ones are counted, and the counts are written when the window ends.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from namesrv.access.audit_lines import Change, Refusal, RepeatedChange
from namesrv.routeinfo.tables.effects import Registered
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass

# Length of a window; its counts are written at its end.
WINDOW_SECONDS: Final = 10.0
# Different refusals per window with a line each, for one address (for IPv6, one /64 network) and for all addresses.
# Further refusals are counted together by reason and, for up to MAX_COUNTED_ADDRESSES, by address.
MAX_DIFFERENT_PER_ADDRESS: Final = 20
MAX_DIFFERENT: Final = 100
MAX_COUNTED_ADDRESSES: Final = 50
# Changes of one source to one broker with a line each: a broker that stops and comes back makes two.
MAX_CHANGES_PER_BROKER: Final = 3
# Lines per window about brokers of one source: the brokers of a large cluster may all come back at once. Further
# changes are counted, for up to MAX_COUNTED_SOURCES by source.
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
        # Properties in which refusals are equal -> the first refusal, and the number of further ones.
        self._refusals: dict[tuple[object, ...], tuple[Refusal, int]] = {}
        # address -> number of its different refusals
        self._different: Counter[str] = Counter()
        # Refusals beyond the limits, by reason and by address.
        self._others: Counter[str] = Counter()
        self._others_by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._refusals)

    def admit(self, refusal: Refusal, address: str, network: str) -> bool:
        """True if the refusal gets a line of its own; all other refusals are counted."""
        # The remark is part of the key: one reason has many causes, and a peer may claim many identities.
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
        """Yield the lines about counted refusals and begin the next window."""
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
        # (source, broker) -> number of changes with a line of their own, and the changes counted since.
        self._brokers: dict[tuple[str, BrokerAddrInfo | None], int] = {}
        self._repeated: dict[tuple[str, BrokerAddrInfo | None], RepeatedChange] = {}
        # source -> number of lines, including lines at the end of the window
        self._lines: Counter[str] = Counter()
        # Changes beyond the limits, by source and in all.
        self._others: Counter[str] = Counter()
        self._others_in_all = 0

    def __len__(self) -> int:
        return len(self._brokers)

    def admit(self, change: Change, wall: float) -> bool:
        """True if the change gets a line of its own.

        All other changes are counted, except for registrations that changed nothing that a line shows.
        """
        if _is_equal_registration(change):
            return False
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
        """Yield the lines about counted changes and begin the next window."""
        yield from self._repeated.values()
        if self._others_in_all:
            yield {"event": "changes", "count": self._others_in_all, "by_source": dict(self._others)}
        self._others_in_all = 0
        for window in (self._brokers, self._repeated, self._lines, self._others):
            window.clear()


def is_registration(change: Change) -> bool:
    """True for changes by brokers (by request, silence or disconnection); all others are changes by operators."""
    return change.cause in _BROKER_REQUESTS or (change.cause is None and broker_of(change) is not None)


def _is_equal_registration(change: Change) -> bool:
    """True for a registration that changed no route, and nothing that an audit line shows."""
    return all(isinstance(each, Registered) and not any(each.changes()) for each in change.changes)


def broker_of(change: Change) -> BrokerAddrInfo | None:
    """Return the broker of a change: the last one, since a registration may displace other brokers first."""
    brokers = [each.broker for each in change.changes if each.broker is not None]
    return brokers[-1][0] if brokers else None
