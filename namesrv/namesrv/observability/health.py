"""The problems that one server knows: of its readiness, disk, memory and certificate, and of its brokers."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from namesrv.certificates import SOON_DAYS, CrlSeconds
from namesrv.context import Namesrv
from namesrv.yielding import in_chunks
from namesrv_remoting.bodies.extensions import ServerProblem
from namesrv_remoting.health import GroupHealth, group_health

# Share of the memory from which on a problem is reported: large registrations will soon be refused.
FULL_SHARE: Final = 0.8
# Brokers or groups counted between two yields to the event loop: a tenth to a fifth of a millisecond.
_CHUNK: Final = 500
_SHOWN_GROUPS: Final = 20
_DAY_SECONDS: Final = 86_400.0
# Shorter times are shown in hours.
_HOURS_BELOW_DAYS: Final = 2.0
_MIB: Final = 1024 * 1024

# Health -> names of the groups in this state, as `cluster/broker name`.
Groups = Mapping[GroupHealth, Sequence[str]]


@dataclass(frozen=True, slots=True)
class HealthValues:
    """The values from which a server derives its own problems."""

    # The reason that the server gets no route requests; empty if it is ready.
    not_ready: str = ""
    # A remark on why no broker is registered; empty if there is one.
    no_brokers: str = ""
    # File -> the reason that it cannot be written.
    failing_files: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    max_memory_bytes: int = 0
    # None without a certificate.
    certificate_days: float | None = None
    # None without a revocation list.
    crl: CrlSeconds | None = None

    @classmethod
    def of(cls, namesrv: Namesrv) -> "HealthValues":
        """Return the values now."""
        return cls(
            not_ready=namesrv.boot.why_not_serving(),
            no_brokers=_no_brokers(namesrv),
            failing_files={file: why for file, state in namesrv.writes().items() if (why := state.problem())},
            memory_bytes=namesrv.memory_bytes(),
            max_memory_bytes=namesrv.settings.current.max_memory_bytes,
            certificate_days=namesrv.certificates.days_left(),
            crl=namesrv.certificates.most_urgent_crl(),
        )


def server_problems(values: HealthValues) -> list[ServerProblem]:
    """Return the problems of the server itself, worst first."""
    problems = []
    if values.not_ready:
        problems.append(ServerProblem("server_not_ready", values.not_ready))
    elif values.no_brokers:
        problems.append(ServerProblem("no_brokers", values.no_brokers))
    if values.failing_files:
        reasons = "; ".join(map(": ".join, values.failing_files.items()))
        problems.append(ServerProblem("disk_failing", reasons, [*values.failing_files]))
    if values.memory_bytes > FULL_SHARE * values.max_memory_bytes:
        used, limit = values.memory_bytes // _MIB, values.max_memory_bytes // _MIB
        problems.append(ServerProblem("memory_budget", f"{used} of {limit} MiB in use"))
    # cause -> reason
    expiring = {}
    if (days := values.certificate_days) is not None and days < SOON_DAYS:
        expiring[_expiry_cause("certificate", days)] = expiry_text(days)
    if values.crl is not None and values.crl.until_renewal < 0:
        expiring[_expiry_cause("revocation list", values.crl.until_expiry)] = crl_text(values.crl)
    if expiring:
        problems.append(ServerProblem("certificate_expires", "; ".join(expiring.values()), [*expiring]))
    return problems


def _no_brokers(namesrv: Namesrv) -> str:
    if namesrv.manager.tables.broker_live_table:
        return ""
    if namesrv.boot.readiness.expects_brokers:
        return "there were some before the start: check their logs and the network"
    return "each broker needs this server in its list of NameServers (namesrvAddr)"


def expiry_text(days: float) -> str:
    """The time until a certificate or revocation list expires, or since it has expired."""
    if days == math.inf:
        return "never expires"
    lasting = f"{abs(days):.1f} days" if abs(days) >= _HOURS_BELOW_DAYS else f"{abs(days) * 24:.1f} hours"
    return f"expires in {lasting}" if days > 0 else f"expired {lasting} ago"


def _expiry_cause(what: str, left: float) -> str:
    return f"{what} {'expires' if left > 0 else 'expired'}"


def crl_text(crl: CrlSeconds) -> str:
    """The time until a revocation list expires, or since it has expired."""
    return f"revocation list {expiry_text(crl.until_expiry / _DAY_SECONDS)}"


def group_problems(groups: Groups, write_removed: Sequence[str]) -> list[ServerProblem]:
    """Return the problems of the broker groups, one of each kind, with the names of the groups."""
    named = {health.value: groups.get(health, ()) for health in GroupHealth if health is not GroupHealth.HEALTHY}
    return [
        ServerProblem(kind, _listed(names))
        for kind, names in {**named, "write_removed": sorted(write_removed)}.items()
        if names
    ]


async def groups_by_health(namesrv: Namesrv) -> dict[GroupHealth, list[str]]:
    """Return the names of all broker groups by their health; the event loop runs between chunks."""
    by_health: dict[GroupHealth, list[str]] = {health: [] for health in GroupHealth}
    now, tables = namesrv.manager.now(), namesrv.manager.tables
    silences: defaultdict[str, dict[int, float]] = defaultdict(dict)
    async for some in in_chunks(list(tables.broker_live_table.values()), _CHUNK):
        for live in some:
            silences[live.broker_name][live.broker_id] = (now - live.last_update) / live.expiry_seconds
    async for part in in_chunks(list(tables.broker_addr_table.values()), _CHUNK):
        for group in part:
            # The brokers are found by the name of their group: they may have registered under another cluster's name
            # than the group has. A group that came after the first chunk has no brokers here.
            if group.broker_name in silences:
                by_health[group_health(silences[group.broker_name])].append(f"{group.cluster}/{group.broker_name}")
    return by_health


async def all_problems(namesrv: Namesrv) -> list[ServerProblem]:
    """Return the problems of the server and of its broker groups."""
    groups = await groups_by_health(namesrv)
    return [
        *group_problems(groups, list(namesrv.manager.tables.write_removed)),
        *server_problems(HealthValues.of(namesrv)),
    ]


def _listed(names: Sequence[str]) -> str:
    left_out = len(names) - _SHOWN_GROUPS
    return ", ".join(names[:_SHOWN_GROUPS]) + (f" and {left_out} more" if left_out > 0 else "")
