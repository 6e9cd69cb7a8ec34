"""Brokers that have left servers: when, and why; each until it is back, is dismissed, or an hour has passed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from namesrv_client.health import Gone, InstanceKey, removal_events, removal_reason, write_shares
from namesrv_console.state import BrokerKey, ServerView
from namesrv_remoting.bodies.extensions import Event

# A broker that has left is remembered for an hour.
_GONE_SECONDS: Final = 3600.0
# The most brokers that are remembered after they left.
_MAX_GONE: Final = 1000

# A server, and the addresses of the instances of each broker group on the server.
_Registered = tuple[ServerView, Mapping[tuple[str, str], Collection[str]]]


@dataclass(frozen=True, slots=True)
class _Left:
    """A broker that a server removed, with what shows the reason of the removal and the broker's return."""

    gone: Gone
    # The broker's last address, and the number of instances of its group before the removal.
    address: str
    instances: int
    # The server that removed the broker, the server's boot, and a number below that of the removal's event.
    server: str
    boot_id: str | None
    since_seq: int

    def is_back(self, registered: _Registered) -> bool:
        """True if a server has the broker, or has it under another id and no fewer instances of its group."""
        view, groups = registered
        addresses = groups.get(self.gone.group, ())
        return self.gone.key in view.brokers or (self.address in addresses and len(addresses) >= self.instances)

    def is_over(self, reporting: Sequence[_Registered]) -> bool:
        """True if all servers have the broker, or the one that removed it has it again."""
        back = [registered[0].address for registered in reporting if self.is_back(registered)]
        return len(back) == len(reporting) or self.server in back

    def with_reason(self, view: ServerView, removed: Mapping[InstanceKey, Event]) -> "_Left":
        """The broker with the reason of its removal, once the server that removed it has reported the event."""
        found = removed.get(self.gone.key)
        if view.boot_id != self.boot_id or found is None or found.seq <= self.since_seq:
            return self
        return replace(self, gone=replace(self.gone, reason=removal_reason(found)))


class GoneBrokers:
    """The brokers that have left, according to the servers that report their brokers; without a clock."""

    def __init__(self) -> None:
        # Brokers that a server removed and no reporting server has, the last one first.
        self.brokers: Sequence[Gone] = ()
        # Brokers that a server removed, and that are not registered with it again; the first one first.
        self._left: dict[BrokerKey, _Left] = {}
        # Address -> the last view of a server that reported its brokers.
        self._reported: dict[str, ServerView] = {}

    def __repr__(self) -> str:
        return f"<GoneBrokers [{len(self.brokers)} gone | {len(self._left)} removed by a server]>"

    def look(self, servers: Sequence[ServerView], now: float) -> None:
        """Note the brokers that have left servers since the last look, and forget those that are back."""
        # A broker whose servers have all become unreachable may still be there, until one of them responds without it.
        reporting = [view for view in servers if view.reports_brokers]
        # A server that waits for its brokers after a start may lack brokers that have not left.
        if not any(view.info is None or view.info.ready for view in reporting):
            return
        registered = self._registered(reporting)
        self._left = {key: left for key, left in self._left.items() if not left.is_over(registered)}
        for view in reporting:
            self._note_removals(view, now)
        self._forget_oldest(now)
        self._note_reasons(reporting)
        registered = self._registered(reporting)
        gone = [left.gone for left in self._left.values() if not any(map(left.is_back, registered))]
        self.brokers = sorted(gone, key=lambda one: (-one.left_at, one.key))
        self._reported |= {view.address: view for view in reporting}

    def dismiss(self, key: BrokerKey) -> None:
        """Forget a broker that has left."""
        self._left.pop(key, None)
        self._forget([key])
        self.brokers = [one for one in self.brokers if one.key != key]

    def _registered(self, reporting: Sequence[ServerView]) -> list[_Registered]:
        """The servers with their groups; empty if no broker has left, since the groups take long to collect."""
        return [(view, _addresses(view)) for view in reporting] if self._left else []

    def _note_removals(self, view: ServerView, now: float) -> None:
        """Note the brokers that a server had when it last reported its brokers, and does not have now."""
        before = self._reported.get(view.address)
        if before is not None:
            for key in sorted(before.brokers.keys() - view.brokers.keys()):
                self._left[key] = self._removed(key, before, now)

    def _removed(self, key: BrokerKey, before: ServerView, now: float) -> _Left:
        """A broker that a server has removed since this view of it; another server's removal may show the reason."""
        known = self._left.get(key)
        affected = write_shares(before.topic_report.routes.items(), [key.broker_name]).get(key.broker_name)
        live = before.brokers[key].live
        topics = live.topics or 0
        if known is None:
            gone = Gone(key, now, "", topics, affected)
        else:
            gone = Gone(key, now, known.gone.reason, max(topics, known.gone.topics), affected or known.gone.affected)
            if before.info is None:
                # Apache's server reports no events; the server that removed the broker before may report the reason.
                return replace(known, gone=gone)
        instances = sum(other[:2] == key[:2] for other in before.brokers)
        return _Left(gone, live.broker_addr, instances, before.address, before.boot_id, before.brokers_seq)

    def _note_reasons(self, reporting: Sequence[ServerView]) -> None:
        if self._left:
            removed = {view.address: (view, removal_events(view.events)) for view in reporting}
            self._left = {
                key: left.with_reason(*removed[left.server]) if left.server in removed else left
                for key, left in self._left.items()
            }

    def _forget_oldest(self, now: float) -> None:
        """Forget the brokers that left an hour ago, and the first ones of too many."""
        old = [key for key, left in self._left.items() if now - left.gone.left_at >= _GONE_SECONDS]
        self._forget(old)
        for key in old:
            del self._left[key]
        while len(self._left) > _MAX_GONE:
            del self._left[next(iter(self._left))]

    def _forget(self, keys: Collection[BrokerKey]) -> None:
        """Forget that servers reported these brokers: a server that responds again without them removed them before."""
        for address, view in self._reported.items() if keys else ():
            brokers = {key: seen for key, seen in view.brokers.items() if key not in keys}
            self._reported[address] = replace(view, brokers=brokers)


def _addresses(view: ServerView) -> dict[tuple[str, str], list[str]]:
    """The addresses of the instances of each broker group on a server."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, seen in view.brokers.items():
        groups.setdefault(key[:2], []).append(seen.live.broker_addr)
    return groups
