"""The figures of an attack: what it cost the server and the well-behaved peers, each with its bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.abuse.attacks import Attack
from benchmarks.abuse.others import Newcomer, Pull
from benchmarks.harness.figures import Figure, Target, Unit, at_most, percentile, spelt

_MIB: Final = 1024 * 1024
# milliseconds of the server for a mebibyte from one peer; a tiny attack may cost as much as a mebibyte
CPU_MS_PER_MIB: Final = 200
_ONE_PEER_MB: Final = 67.1
# --max-memory-bytes, by default
_BUDGET_MB: Final = 536.9
_P99_RATIO: Final = 3.0
# Below the scheduler's time slice the ratio depends on chance.
_P99_FLOOR_SECONDS: Final = 0.005
_STALL_MS: Final = 50
# What hundreds of peers do at once may take longer.
_FEW_PEERS: Final = 10
_NEWCOMER_SECONDS: Final = 1.0
# where connection slots or memory are used up: a client's time-out is 3 s, a broker's 6
_CROWDED_SECONDS: Final = 6.0
# a kubelet's time-out
PROBE_SECONDS: Final = 1.0
STOPPING_SECONDS: Final = 5.0
# beyond those within the expiry: the puller's own interval, and a scan that is late
_LATE_SCANS: Final = 2
# how much later than its expiry and a scan a dead broker may be gone
_LATE_SECONDS: Final = 0.2
# Figures that depend on the load of the machine.
TIMED: Final = frozenset({"cpu", "p99", "stall", "late", "overdue", "slow", "livez", "stop"})


@dataclass(frozen=True, slots=True)
class Durations:
    """How long each part takes, and how soon a silent broker has to be gone."""

    quiet_seconds: float
    attack_seconds: float
    heartbeat_seconds: float
    # Four heartbeats, as with the defaults (30 s and 120 s). An attack lasts longer than both together.
    expiry_seconds: float
    scan_seconds: float

    @property
    def flags(self) -> tuple[str, ...]:
        """The settings."""
        expiry, scan = str(self.expiry_seconds), str(self.scan_seconds)
        return ("--broker-expiry-seconds", expiry, "--scan-interval-seconds", scan)

    @property
    def most_scans(self) -> int:
        """Scans that a dead broker may survive, if the server is not starved of processor time."""
        return round(self.expiry_seconds / self.scan_seconds) + _LATE_SCANS

    @property
    def most_dead_seconds(self) -> float:
        """How long routes may show a dead broker."""
        return self.expiry_seconds + self.scan_seconds + _LATE_SECONDS


@dataclass(frozen=True, slots=True)
class Costs:
    """What an attack cost the server's process; its methods make the figures."""

    name: str
    attack: Attack
    durations: Durations
    # bytes that the attacker sent, with a packet at least for each frame and connection
    weight: int
    # beyond what the server computes without the attack
    cpu_seconds: float
    peak_bytes: float
    # of that the tables', by the server's own estimate: what the attacker may register
    table_bytes: float
    # of the server's memory cgroup, sockets included; 0 without one
    group_peak_bytes: int = 0

    def figure(  # noqa: PLR0913 - a figure has so many fields
        self, key: str, column: str, unit: Unit, value: float, *, target: Target | None = None, behind: str = ""
    ) -> Figure:
        """A figure of the attack."""
        return Figure(f"{self.name}.{key}", self.name, unit, (value,), target, behind, column)

    def none(self, key: str, count: float) -> Figure:
        """The count of something that must not happen."""
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
        group = f"{spelt(self.group_peak_bytes / 1e6, 'megabytes')} of its cgroup" if self.group_peak_bytes else ""
        most_cpu = at_most(CPU_MS_PER_MIB) if is_one else None
        cpu_ms = 1000 * self.cpu_seconds / max(1.0, mib)
        return [
            self.figure("sent", "sent", "megabytes", self.weight / 1e6),
            self.figure("cpu", "CPU of a MiB", "milliseconds", cpu_ms, target=most_cpu),
            self.figure("memory", "peak beside the tables", "megabytes", memory, target=most, behind=group),
            self.figure("tables", "tables", "megabytes", self.table_bytes / 1e6),
        ]

    def waits(self, during: Sequence[Pull], quiet: Sequence[Pull]) -> list[Figure]:
        """Waits of the puller; the part of one that other processes added is not the attacker's."""
        longest, computed = (
            1000 * percentile(values, 1)
            for values in ((pull.seconds for pull in during), (pull.cpu_seconds for pull in during))
        )
        p99s = [percentile((pull.seconds for pull in pulls), 0.99) for pulls in (during, quiet)]
        cpu_p99s = [percentile((pull.cpu_seconds for pull in pulls), 0.99) for pulls in (during, quiet)]
        late = min(_ratio(*p99s), _ratio(*cpu_p99s))
        behind = " / ".join(spelt(1000 * each, "milliseconds") for each in p99s)
        stall = at_most(_STALL_MS) if self._few else None
        return [
            self.figure("longest", "longest wait", "milliseconds", longest),
            self.figure("stall", "of it CPU", "milliseconds", min(longest, computed), target=stall),
            self.figure("p99", "p99 / quiet", "times", late, target=at_most(_P99_RATIO), behind=behind),
        ]

    def newcomers(self, newcomers: Sequence[Newcomer]) -> list[Figure]:
        """Newcomers that were refused although they may not be, and the longest wait of the others."""
        refused = [one for one in newcomers if one.refused]
        may_be_refused = {False: self.attack.may_refuse_clients, True: self.attack.may_refuse_brokers}
        wrongly = sum(not may_be_refused[one.is_broker] for one in refused)
        slowest = max((one.seconds for one in newcomers if not one.refused), default=0.0)
        most = at_most(_CROWDED_SECONDS if self.attack.may_refuse_clients else _NEWCOMER_SECONDS)
        behind = f"{len(refused)}/{len(newcomers)}"
        return [
            self.figure("refused", "refused", "count", wrongly, target=at_most(0), behind=behind),
            self.figure("slow", "newcomer", "seconds", slowest, target=most),
        ]

    def deaths(self, *, scans: int, seconds: float) -> list[Figure]:
        """Scans that the dead broker survived, and how long after its last request routes showed it."""
        most_scans = at_most(self.durations.most_scans)
        overdue = at_most(self.durations.most_dead_seconds) if self._few else None
        return [
            self.figure("late", "dead broker's scans", "count", scans, target=most_scans),
            self.figure("overdue", "dead broker", "seconds", seconds, target=overdue),
        ]


def _ratio(attacked: float, quiet: float) -> float:
    return attacked / max(_P99_FLOOR_SECONDS / _P99_RATIO, quiet)
