"""Names and levels of all problems, and the health of a broker group.

The server, its alerts, `namesrvctl` and the console use the same names. `namesrv_client.health` finds the problems of
several servers, and `namesrv.observability.health` those that one server knows.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from namesrv_remoting.codes import MASTER_ID

# Share of its expiry for which a broker may be silent before it counts as silent: 60 of 120 s are two heartbeats.
SILENT_SHARE: Final = 0.5

# Unknown: the reports that a judgement needs are missing, so that the state may be critical.
Level = Literal["critical", "unknown", "warning", "good"]

Kind = Literal[
    "group_gone",
    "without_master",
    "silent_master",
    "server_unreachable",
    "server_frozen",
    "tls_failed",
    "server_refuses",
    "not_reported",
    "server_asked",
    "broker_gone",
    "server_not_ready",
    "no_brokers",
    "missing_broker",
    "disagreement",
    "write_removed",
    "disk_failing",
    "memory_budget",
    "certificate_expires",
]
# The level of each kind of problem; worst first.
LEVELS: Final[Mapping[Kind, Level]] = {
    "group_gone": "critical",
    "without_master": "critical",
    "silent_master": "critical",
    "server_unreachable": "critical",
    "server_frozen": "critical",
    "tls_failed": "critical",
    "server_refuses": "unknown",
    "not_reported": "unknown",
    "server_asked": "unknown",
    "broker_gone": "warning",
    "server_not_ready": "warning",
    "no_brokers": "warning",
    "missing_broker": "warning",
    "disagreement": "warning",
    "write_removed": "warning",
    "disk_failing": "warning",
    "memory_budget": "warning",
    "certificate_expires": "warning",
}


class GroupHealth(StrEnum):
    """State of one broker group; the unhealthy states are kinds of problems."""

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
