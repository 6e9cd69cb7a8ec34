"""Health of a broker group: whether it has a master, and whether the master still sends heartbeats.

The server counts groups by this state in its metrics, and `namesrvctl` and the console show it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from namesrv_remoting.codes import MASTER_ID

# Share of its expiry for which a broker may be silent before it counts as silent: 60 of 120 s are two heartbeats.
SILENT_SHARE: Final = 0.5


class GroupHealth(StrEnum):
    """State of one broker group."""

    HEALTHY = "healthy"
    # Only slaves are registered: producers cannot write to the group.
    WITHOUT_MASTER = "without_master"
    # The master has missed two heartbeats while a slave sends them: it hangs, or it lost its network.
    SILENT_MASTER = "silent_master"


def group_health(silences: Mapping[int, float | None]) -> GroupHealth:
    """The state of a group with these brokers.

    `silences` has, by broker id, the share of the expiry that has passed since the last heartbeat; None if the server
    does not report it, as Apache's server.
    """
    if MASTER_ID not in silences:
        return GroupHealth.WITHOUT_MASTER
    silent = {number: share is not None and share > SILENT_SHARE for number, share in silences.items()}
    if silent.pop(MASTER_ID) and not all(silent.values()):
        return GroupHealth.SILENT_MASTER
    return GroupHealth.HEALTHY
