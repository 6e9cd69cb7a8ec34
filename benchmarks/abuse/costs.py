"""The figures of an attack: its cost for the server and for well-behaved peers, each with its bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.abuse.attacks import Attack
from benchmarks.abuse.well_behaved import Newcomer, Pull
from benchmarks.harness.figures import Figure, Target, Unit, at_most, format_value, percentile

_MIB: Final = 1024 * 1024
# processor time for a mebibyte from one peer; an attack of fewer bytes may cost as much as one of a mebibyte
CPU_MS_PER_MIB: Final = 200
_ONE_PEER_MB: Final = 67.1
# the default of --max-memory-bytes
_BUDGET_MB: Final = 536.9
_P99_RATIO: Final = 3.0
# A p99 below the scheduler's time slice depends on chance.
_P99_FLOOR_SECONDS: Final = 0.005
_STALL_MS: Final = 50
# Waits have a bound only for attacks from at most so many addresses.
_FEW_PEERS: Final = 10
_NEWCOMER_SECONDS: Final = 1.0
# while connection slots or memory are used up; a client's time-out is 3 s, a broker's 6 s
_CROWDED_SECONDS: Final = 6.0
# time-out of a kubelet's probe
PROBE_SECONDS: Final = 1.0
STOPPING_SECONDS: Final = 5.0
# time that a dead broker may stay in routes beyond its expiry and one scan interval
_LATE_SECONDS: Final = 0.2
# keys of figures that other load on the machine makes worse
TIMED: Final = frozenset({"cpu", "p99", "stall", "overdue", "slow", "livez", "stop"})


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations of the parts of a measurement, and the times of brokers and scans."""

    quiet_seconds: float
    attack_seconds: float
    heartbeat_seconds: float
    # Four heartbeats, as with the defaults (30 s and 120 s); an attack lasts longer than expiry and heartbeat together.
    expiry_seconds: float
    scan_seconds: float


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of an attack for the server's process; the methods make figures."""

    name: str
    attack: Attack
    durations: Durations
    # bytes that the attacker sent; each frame and each connection counts as a packet at least
    weight: int
    # as in Attacker
    attempts: int
    successes: int
    # processor time of the attack, without what the well-behaved peers cost
    cpu_seconds: float
    peak_bytes: float
    # part of the peak for tables of registered brokers, as the server estimates it
    table_bytes: float
    # peak memory of the server's cgroup, including sockets; 0 without a cgroup
    group_peak_bytes: int = 0

    def figure(  # noqa: PLR0913 - a figure has so many fields
        self, key: str, column: str, unit: Unit, value: float, *, target: Target | None = None, details: str = ""
    ) -> Figure:
        """A figure of the attack."""
        return Figure(f"{self.name}.{key}", self.name, unit, (value,), target, details, column)

    def none(self, key: str, count: float) -> Figure:
        """The number of events that must not happen."""
        return self.figure(key, key, "count", count, target=at_most(0))

    @property
    def _few(self) -> bool:
        return self.attack.peers <= _FEW_PEERS

    def figures(self) -> list[Figure]:
        """Processor time and memory."""
        is_one = self.attack.peers == 1
        mib = self.weight / _MIB
        memory = (self.peak_bytes - self.table_bytes) / 1e6
        most = at_most(_ONE_PEER_MB if is_one else _BUDGET_MB)
        group = (
            f"{format_value(self.group_peak_bytes / 1e6, 'megabytes')} of its cgroup" if self.group_peak_bytes else ""
        )
        attempts = f"{self.successes:,} of {self.attempts:,} attempts"
        most_cpu = at_most(CPU_MS_PER_MIB) if is_one else None
        cpu_ms = 1000 * self.cpu_seconds / max(1.0, mib)
        return [
            self.figure("sent", "sent", "megabytes", self.weight / 1e6, details=attempts),
            self.figure("cpu", "CPU of a MiB", "milliseconds", cpu_ms, target=most_cpu),
            self.figure("memory", "peak beside the tables", "megabytes", memory, target=most, details=group),
            self.figure("tables", "tables", "megabytes", self.table_bytes / 1e6),
        ]

    def waits(self, during: Sequence[Pull], quiet: Sequence[Pull]) -> list[Figure]:
        """Waits of the puller during and without the attack, by the clock and in the server's processor time."""
        longest_ms = 1000 * percentile((pull.seconds for pull in during), 1)
        longest_cpu_ms = 1000 * percentile((pull.cpu_seconds for pull in during), 1)
        p99, quiet_p99 = (percentile((pull.seconds for pull in pulls), 0.99) for pulls in (during, quiet))
        cpu_p99, quiet_cpu_p99 = (percentile((pull.cpu_seconds for pull in pulls), 0.99) for pulls in (during, quiet))
        late = min(_ratio(p99, quiet_p99), _ratio(cpu_p99, quiet_cpu_p99))
        details = f"{format_value(1000 * p99, 'milliseconds')} / {format_value(1000 * quiet_p99, 'milliseconds')}"
        stall = at_most(_STALL_MS) if self._few else None
        return [
            self.figure("longest", "longest wait", "milliseconds", longest_ms),
            self.figure("stall", "of it CPU", "milliseconds", min(longest_ms, longest_cpu_ms), target=stall),
            self.figure("p99", "p99 / quiet", "times", late, target=at_most(_P99_RATIO), details=details),
        ]

    def newcomers(self, newcomers: Sequence[Newcomer]) -> list[Figure]:
        """The number of wrongly refused newcomers, and the longest wait of a served one."""
        refused = [one for one in newcomers if one.refused]
        wrongly = sum(one.is_broker or not self.attack.may_refuse_clients for one in refused)
        slowest = max((one.seconds for one in newcomers if not one.refused), default=0.0)
        most = at_most(_CROWDED_SECONDS if self.attack.may_refuse_clients else _NEWCOMER_SECONDS)
        details = f"{len(refused)}/{len(newcomers)}"
        return [
            self.figure("refused", "refused", "count", wrongly, target=at_most(0), details=details),
            self.figure("slow", "newcomer", "seconds", slowest, target=most),
        ]

    def overdue(self, seconds: float) -> Figure:
        """How long after its last request routes contained the dead broker."""
        most = self.durations.expiry_seconds + self.durations.scan_seconds + _LATE_SECONDS
        target = at_most(most) if self._few else None
        return self.figure("overdue", "dead broker", "seconds", seconds, target=target)


def _ratio(attacked: float, quiet: float) -> float:
    return attacked / max(_P99_FLOOR_SECONDS / _P99_RATIO, quiet)
