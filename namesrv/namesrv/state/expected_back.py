"""Brokers whose connection was closed in the last 35 s, and that are expected back."""

from collections.abc import Callable, Sized
from typing import Final

from namesrv.routeinfo.rules import TableLimits
from namesrv.routeinfo.tables.effects import Effect, Evicted, Registered
from namesrv.routeinfo.tables.liveness import NEVER
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.state.snapshot import ExpectedBroker

# Time after which a broker that lost its connection has registered again: RocketMQ's brokers register every 30 s, and
# agents pause for at most 15 s between two attempts, unless their `max_backoff_seconds` is longer than that.
RECONNECTION_SECONDS: Final = 35.0


class BrokersExpectedBack:
    """Brokers that were evicted because their connection closed, as an observer of effects; each for 35 s.

    They stay in the snapshot: a server that is killed right after a network failure would otherwise expect no brokers
    at its next boot, and answer route requests before they are back. The limit for registered brokers holds for them,
    too: beyond the limit, the broker that was disconnected first is forgotten.

    A server that loses half of its brokers or more within 35 s may be cut off itself, and so may a server whose last
    broker became silent: a network that drops packets closes no connection. When the network is back, clients may reach
    the server before the brokers do. A server that some brokers still reach takes the silent ones for dead, however
    many they are; the return of one of them shows that the others may be alive as well.
    """

    def __init__(self, now: Callable[[], float], limits: TableLimits, live: Sized) -> None:
        # the time of the WaitClock, which leaves out stops of this process
        self._now = now
        self._limits = limits
        # the brokers that are registered now
        self._live = live
        # after half of the brokers or more were disconnected: time until which they are expected back
        self._disconnected_awaited_until = 0.0
        # after the last broker became silent, or `waited_in_vain`: NEVER until a broker registers, then 35 s after its
        # registration; after half of the brokers or more became silent: 35 s after the first of them has registered
        self._silent_awaited_until = 0.0
        # identities of brokers that became silent and have not registered since, in this order; emptied when
        # `_silent_awaited_until` is set by a registration, so that brokers that return one by one extend no wait
        self._silent: dict[tuple[str, str, int], None] = {}
        # (cluster, broker name, broker id) -> the broker, and the time until which it is expected back; in
        # the order of these times
        self._expected: dict[tuple[str, str, int], tuple[ExpectedBroker, float]] = {}

    def __repr__(self) -> str:
        return f"<BrokersExpectedBack [{len(self._expected)}]>"

    def observe(self, effect: Effect) -> None:
        """Note a broker that was disconnected, or that is back or left for another reason."""
        match effect:
            case Evicted(reason="disconnected"):
                self._add(ExpectedBroker.of(effect.key, effect.live))
            case Evicted():
                self.forget(effect.key, effect.live)
                if effect.reason == "silent":
                    self._note_silence(ExpectedBroker.of(effect.key, effect.live))
            case Registered():
                broker = ExpectedBroker.of(effect.key, effect.live)
                self._expected.pop(broker.identity, None)
                self._note_return(broker)

    def waited_in_vain(self) -> None:
        """Note that no broker registered while this boot waited for them: the outage may continue."""
        self._silent_awaited_until = NEVER

    def forget(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> None:
        """Forget a broker that is back, or that left for another reason, as by a change of the access file."""
        identity = ExpectedBroker.of(key, live).identity
        self._expected.pop(identity, None)
        self._silent.pop(identity, None)

    def _note_silence(self, broker: ExpectedBroker) -> None:
        self._silent[broker.identity] = None
        if len(self._silent) > self._limits.max_brokers:
            del self._silent[next(iter(self._silent))]
        if not self._live:
            self._silent_awaited_until = NEVER

    def _note_return(self, broker: ExpectedBroker) -> None:
        """Note the registration of a broker: the first one after a common silence begins the wait for the others."""
        was_silent = broker.identity in self._silent
        self._silent.pop(broker.identity, None)
        # The silent brokers before this return, and the live ones, were the brokers before the silence.
        were_half_silent = len(self._silent) + 1 >= len(self._live) - 1
        if self._silent_awaited_until == NEVER or (was_silent and self._silent and were_half_silent):
            self._silent_awaited_until = self._now() + RECONNECTION_SECONDS
            self._silent.clear()

    def _add(self, broker: ExpectedBroker) -> None:
        until, may_lack_disconnected = self._now() + RECONNECTION_SECONDS, self._may_lack_disconnected
        # A broker that was disconnected before moves to the end.
        self._expected.pop(broker.identity, None)
        self._expected[broker.identity] = broker, until
        if len(self._expected) > self._limits.max_brokers:
            del self._expected[next(iter(self._expected))]
        # `expected` drops brokers whose 35 s are over, and goes through all noted ones for that: it is called only if
        # enough are noted, since thousands may be disconnected one right after the other.
        if may_lack_disconnected or (
            len(self._expected) >= len(self._live) and len(self.expected()) >= len(self._live)
        ):
            self._disconnected_awaited_until = until
        else:
            # Fewer than half are disconnected. The time of an earlier loss may still lie in the future if all of its
            # brokers came back early; this broker must not make it count again.
            self._disconnected_awaited_until = 0.0

    @property
    def may_lack_live_brokers(self) -> bool:
        """The server's routes may lack live brokers.

        True after half of the brokers or more were disconnected, until all are back or have had time to be. Also true
        while `may_lack_silent` is true.
        """
        return self._may_lack_disconnected or self.may_lack_silent

    @property
    def may_lack_silent(self) -> bool:
        """The server's routes may lack live brokers that became silent.

        True after the last broker became silent, or `waited_in_vain`, until 35 s after the next registration.
        If half of the brokers or more became silent and others stayed, it is true for 35 s after the first return.

        A boot that begins in this time expects brokers without knowing which: the silent ones have left the tables one
        by one, and the snapshot does not name them.
        """
        return self._now() < self._silent_awaited_until

    @property
    def _may_lack_disconnected(self) -> bool:
        """The server's routes may lack live brokers: half of them or more were disconnected, and some are not back."""
        return bool(self._expected) and self._now() < self._disconnected_awaited_until

    def expected(self) -> tuple[ExpectedBroker, ...]:
        """The brokers that are still expected back; brokers whose 35 s are over are dropped."""
        now = self._now()
        self._expected = {identity: entry for identity, entry in self._expected.items() if entry[1] > now}
        return tuple(broker for broker, _ in self._expected.values())
