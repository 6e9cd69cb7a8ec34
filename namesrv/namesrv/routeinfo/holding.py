"""Mass silence: many brokers that fall silent together have rather lost the network than died, and may be held.

One broker that is silent is dead. A rack that is silent may be dead, too, or it cannot reach this server for a while:
the server cannot tell. Held brokers stay in the routes for longer than their expiry; who is heard again is as alive as
before, and who is not leaves when the hold is over, in turn.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, EvictionsHeld, HeldBroker, HoldsEnded

Outcome = Literal["heard", "left", "evicted"]
LiveTable = Mapping[BrokerAddrInfo, BrokerLiveInfo]
Found = tuple[BrokerAddrInfo, BrokerLiveInfo]

# Silence in expiries with which a broker counts as silent like those that are due. Four heartbeats fit into an expiry:
# when the first of a rack is due, all others have been silent for three of them.
SILENT_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class HoldPolicy:
    """The settings of mass silence."""

    # how much longer a broker may be silent; 0: nobody is held
    hold_seconds: float = 0.0
    # so many of all brokers, and no fewer than so many, make a mass silence
    percent: float = 15.0
    brokers: int = 3
    # of held brokers, and how far apart the scans are
    evictions_per_scan: int = 20
    scan_interval_seconds: float = 10.0


class _Hold(NamedTuple):
    # when it was heard last: with any other time it is alive again
    last_update: float
    # how much longer it may be silent
    seconds: float


class Holds:
    """The brokers that are held, and nothing else: no lock, no clock, no I/O."""

    def __init__(self, policy: HoldPolicy) -> None:
        self.policy = policy
        # what became of those that were held: they were heard again, left by themselves, or were evicted after all
        self.outcomes: Counter[Outcome] = Counter({"heard": 0, "left": 0, "evicted": 0})
        self._held: dict[BrokerAddrInfo, _Hold] = {}
        # since nobody was held: how many were, and the outcomes until then
        self._number = 0
        self._before: Counter[Outcome] = Counter()

    def __repr__(self) -> str:
        return f"<Holds [{len(self._held)} held | {dict(self.outcomes)}]>"

    def seconds_of(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> float | None:
        """By how much a broker's eviction is put off; None when it is not held."""
        hold = self._held.get(key)
        return None if hold is None or hold.last_update != live.last_update else hold.seconds

    def current(self, table: LiveTable) -> int:
        """How many are held."""
        return sum(key in table and self.seconds_of(key, table[key]) is not None for key in self._held)

    def release(self, table: LiveTable) -> HoldsEnded | None:
        """Forget those that were heard again or have left; how it ended, if nobody is held any more."""
        for key, hold in list(self._held.items()):
            live = table.get(key)
            if live is None or live.last_update != hold.last_update:
                self.end(key, "left" if live is None else "heard")
        if self._held or not self._number:
            return None
        heard, left, evicted = (self.outcomes[each] - self._before[each] for each in ("heard", "left", "evicted"))
        self._number, self._before = 0, self.outcomes.copy()
        return HoldsEnded(heard, left, evicted)

    def end(self, key: BrokerAddrInfo, outcome: Outcome) -> None:
        """A broker is held no longer, if it was."""
        if self._held.pop(key, None) is not None:
            self.outcomes[outcome] += 1

    def take(
        self, table: LiveTable, due: Sequence[Found], now: float, is_connected: Callable[[int], bool]
    ) -> tuple[list[HeldBroker], int]:
        """Hold those of the silent brokers that are not held yet, if so many are silent; they, and how many are.

        A broker whose connection has closed is no part of it: that is an answer.
        """
        new = [(key, live) for key, live in due if key not in self._held and is_connected(live.connection_id)]
        if not new:
            return [], 0
        silent = sum(
            now - live.last_update > SILENT_SHARE * live.expiry_seconds and is_connected(live.connection_id)
            for live in table.values()
        )
        if silent < max(self.policy.brokers, self.policy.percent / 100 * len(table)):
            return [], silent
        held = []
        for key, live in new:
            turn = self._number // self.policy.evictions_per_scan
            seconds = self.policy.hold_seconds + turn * self.policy.scan_interval_seconds
            self._number += 1
            self._held[key] = _Hold(live.last_update, seconds)
            held.append(HeldBroker(key, live, seconds))
        return held, silent

    def sort_out(
        self, table: LiveTable, due: Sequence[Found], now: float, scan: int, is_connected: Callable[[int], bool]
    ) -> tuple[Sequence[Found], list[EvictionsHeld | HoldsEnded]]:
        """What a scan that found these silent does: whom it evicts now, and what is to be told."""
        if not self.policy.hold_seconds:
            return due, []
        told: list[EvictionsHeld | HoldsEnded] = []
        if (ended := self.release(table)) is not None:
            told.append(ended)
        held, silent = self.take(table, due, now, is_connected)
        if held:
            told.append(EvictionsHeld(scan, now, tuple(held), silent, len(table)))
        return [(key, live) for key, live in due if live.expires_at() + (self.seconds_of(key, live) or 0) < now], told
