"""Removed write permissions: how long an operator's removal of a broker group's write permission (205) lasts.

A removal holds for the group, since no single broker has a write permission of its own. Registrations of the group do
not restore the permission. The removal ends in one of these ways:

- An operator restores the permission (327).
- The group's master unregisters, or its last broker does.
- The master has left without unregistering, and its expiry after its last heartbeat is over.
- The last broker of a group without a master has left without unregistering, and the expiries of all slaves that left
  in this way are over. The slave that was seen last need not be the last to leave.
- After a restart of the server, no broker of the group has registered within the default expiry. A removal that was
  about to end when the server stopped has the rest of its time instead, since it began with another broker's expiry.

If the master returns in time, the removal goes on as at its beginning. Slaves that return before the master, even to an
empty group, leave the end as it is, since the master may be gone for good. In an empty group that had no master, the
removal goes on as soon as any broker returns in time.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from namesrv.routeinfo.tables.liveness import NEVER
from namesrv.routeinfo.tables.records import BrokerLiveInfo, Reason
from namesrv_remoting.codes import MASTER_ID


class WriteRemoval(NamedTuple):
    """The removal of a broker group's write permission."""

    # The end in liveness seconds; NEVER until the master, or the last broker of the group, has left.
    ends_at: float = NEVER
    # The latest end of the expiries of the slaves that have left.
    slaves_expire_at: float = 0.0
    # True if the end is that of a master that has left: registrations of slaves do not lift the end.
    awaits_master: bool = False

    def after_registration(self, broker_id: int) -> "WriteRemoval":
        """Return the removal after the registration of a broker."""
        was_empty = self.ends_at != NEVER and not self.awaits_master
        return WriteRemoval() if broker_id == MASTER_ID or was_empty else self

    def after_departure(self, live: BrokerLiveInfo, reason: Reason, *, is_last: bool) -> "WriteRemoval | None":
        """Return the removal after a broker has left; None if the removal has ended."""
        is_master = live.broker_id == MASTER_ID
        if reason == "unregistered":
            return None if is_master or is_last else self
        if self.ends_at != NEVER:
            return self
        if is_master:
            return WriteRemoval(live.expires_at(), awaits_master=True)
        latest = max(self.slaves_expire_at, live.expires_at())
        return WriteRemoval(latest if is_last else NEVER, latest)


class RemovalEnd(NamedTuple):
    """The end of a removal in the snapshot: what the next boot needs of a `WriteRemoval` that has an end."""

    broker_name: str
    # Whole seconds from the time of the snapshot. The time in which no server runs does not count: no broker could
    # return in it.
    seconds_left: int
    awaits_master: bool

    def restored(self, now: float, least_seconds: float) -> WriteRemoval:
        """Return the removal after a restart; brokers have at least these seconds to connect again."""
        return WriteRemoval(now + max(self.seconds_left, least_seconds), awaits_master=self.awaits_master)


def removal_ends(removals: Mapping[str, WriteRemoval], now: float) -> tuple[RemovalEnd, ...]:
    """Return the ends of the removals that have one, in the order of their groups' names."""
    with_end = sorted((name, removal) for name, removal in removals.items() if removal.ends_at != NEVER)
    return tuple(RemovalEnd(name, math.ceil(each.ends_at - now), each.awaits_master) for name, each in with_end)


def ended_removals(removals: Mapping[str, WriteRemoval], now: float) -> list[str]:
    """Return the groups whose removal is over at `now`."""
    return [name for name, removal in removals.items() if removal.ends_at < now]
