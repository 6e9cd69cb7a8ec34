"""Removed write permissions: how long an operator's removal of a broker group's write permission (205) lasts.

A removal holds for the group, since no single broker has a write permission of its own. Registrations of the group do
not restore the permission. The removal ends in one of these ways:

- An operator restores the permission (327).
- The group's master unregisters, or its last broker does.
- The master has left without unregistering, and its expiry after its last heartbeat is over.
- The last broker of a group without a master has left without unregistering, and the expiries of all slaves that left
  in this way are over. The slave that was seen last need not be the last to leave.
- After a restart of the server, no broker of the group has registered within the default expiry.

If the master returns in time, or any broker of an empty group, the removal goes on as at its beginning.
"""

from collections.abc import Mapping
from typing import NamedTuple

from namesrv.routeinfo.liveness import NEVER
from namesrv.routeinfo.records import BrokerLiveInfo, Reason
from namesrv_remoting.codes import MASTER_ID


class WriteRemoval(NamedTuple):
    """The removal of a broker group's write permission."""

    # The end in liveness seconds; NEVER until the master, or the last broker of the group, has left.
    ends_at: float = NEVER
    # The latest end of the expiries of the slaves that have left.
    slaves_expire_at: float = 0.0

    def after_registration(self, broker_id: int, *, is_first: bool) -> "WriteRemoval":
        """Return the removal after the registration of a broker; `is_first`: the group had no broker."""
        return WriteRemoval() if broker_id == MASTER_ID or is_first else self

    def after_departure(self, live: BrokerLiveInfo, reason: Reason, *, is_last: bool) -> "WriteRemoval | None":
        """Return the removal after a broker has left; None if the removal has ended."""
        is_master = live.broker_id == MASTER_ID
        if reason == "unregistered":
            return None if is_master or is_last else self
        if self.ends_at != NEVER:
            return self
        if is_master:
            return WriteRemoval(live.expires_at())
        latest = max(self.slaves_expire_at, live.expires_at())
        return WriteRemoval(latest if is_last else NEVER, latest)


def ended_removals(removals: Mapping[str, WriteRemoval], now: float) -> list[str]:
    """Return the groups whose removal is over at `now`."""
    return [name for name, removal in removals.items() if removal.ends_at < now]
