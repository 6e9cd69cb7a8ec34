"""Table of what each attack cost, against its targets."""

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.abuse.scenario import Result
from benchmarks.harness import table

# -- targets -----------------------------------------------------------------------------------------------------------

CPU_PER_MIB: Final = 0.2
# A tiny attack may cost as much as a mebibyte.
LEAST_MIB: Final = 1.0
ONE_PEER_MIB: Final = 64.0
# --max-memory-bytes, by default
BUDGET_MIB: Final = 512.0
P99_RATIO: Final = 3.0
# Below the scheduler's time slice the ratio depends on chance.
P99_FLOOR_SECONDS: Final = 0.005
STALL_SECONDS: Final = 0.05
FEW_PEERS: Final = 10
NEWCOMER_SECONDS: Final = 1.0
# where connection slots or memory are used up: a client's time-out is 3 s, a broker's 6
CROWDED_SECONDS: Final = 6.0
# a kubelet's time-out
PROBE_SECONDS: Final = 1.0
STOPPING_SECONDS: Final = 5.0


def cpu_per_mib(result: Result) -> float:
    """What a mebibyte cost."""
    return result.cpu_seconds / max(LEAST_MIB, result.weight_mib)


def _is_late(quiet: float, attacked: float) -> bool:
    return attacked > _longest_p99(quiet)


def _longest_p99(quiet: float) -> float:
    return max(P99_FLOOR_SECONDS, P99_RATIO * quiet)


def _most_mib(result: Result) -> float:
    return ONE_PEER_MIB if result.peers == 1 else BUDGET_MIB


def _refused(result: Result) -> int:
    brokers = 0 if result.may_refuse_brokers else result.refused_brokers
    return brokers + (0 if result.may_refuse_clients else result.refused_clients)


# Target -> whether a result misses it. Targets in TIMED depend on the load of the machine.
MISSES: Final[dict[str, Callable[[Result], bool]]] = {
    "cpu": lambda result: result.peers == 1 and cpu_per_mib(result) > CPU_PER_MIB,
    # what was registered belongs to the tables, which have limits of their own
    "memory": lambda result: result.peak_mib - result.tables_mib > _most_mib(result),
    # What other processes of the machine add to a wait is not the attacker's: the server has to have computed, too.
    "p99": lambda result: (
        _is_late(result.p99_quiet_seconds, result.p99_seconds)
        and _is_late(result.p99_quiet_cpu_seconds, result.p99_cpu_seconds)
    ),
    # As with p99. What hundreds of peers do at once may take longer.
    "stall": lambda result: (
        result.peers <= FEW_PEERS
        and result.longest_seconds > STALL_SECONDS
        and result.longest_cpu_seconds > STALL_SECONDS
    ),
    "killed": lambda result: result.kills > 0,
    "evicted": lambda result: bool(result.evicted or result.lost),
    "dead": lambda result: not result.is_dead_gone,
    "late": lambda result: result.dead_scans > result.most_scans,
    "overdue": lambda result: result.peers <= FEW_PEERS and result.dead_seconds > result.most_dead_seconds,
    "refused": lambda result: _refused(result) > 0,
    "slow": lambda result: (
        result.newcomer_seconds > (CROWDED_SECONDS if result.may_refuse_clients else NEWCOMER_SECONDS)
    ),
    "livez": lambda result: result.livez_seconds > PROBE_SECONDS,
    "hung": lambda result: not result.is_answering,
    "stop": lambda result: result.stopped_seconds > STOPPING_SECONDS,
}
TIMED: Final = frozenset({"cpu", "p99", "stall", "late", "overdue", "slow", "livez", "stop"})


def missed(result: Result) -> list[str]:
    """The targets that it misses."""
    return [name for name, is_missed in MISSES.items() if is_missed(result)]


# -- showing -----------------------------------------------------------------------------------------------------------


_COLUMNS: Final[dict[str, Callable[[Result], str]]] = {
    "attack": lambda result: result.name,
    "sent MiB": lambda result: f"{result.sent_mib:,.1f}",
    "CPU s": lambda result: f"{result.cpu_seconds:.2f}",
    "CPU s/MiB": lambda result: f"{cpu_per_mib(result):.3f}",
    "peak MiB": lambda result: f"{result.peak_mib:,.0f}",
    "tables MiB": lambda result: f"{result.tables_mib:,.0f}",
    "cgroup MiB": lambda result: f"{result.group_peak_mib:,.0f}" if result.limit_mib else "",
    "held MiB": lambda result: f"{result.held_mib:,.0f}",
    "longest wait ms": lambda result: f"{result.longest_seconds * 1000:,.0f}",
    "of it CPU ms": lambda result: f"{result.longest_cpu_seconds * 1000:,.0f}",
    "loop lag ms": lambda result: "" if result.lag_seconds is None else f"<= {result.lag_seconds * 1000:,.0f}",
    "p50 ms": lambda result: f"{result.p50_seconds * 1000:,.1f}",
    "p99 quiet ms": lambda result: f"{result.p99_quiet_seconds * 1000:.1f}",
    "p99 ms": lambda result: f"{result.p99_seconds * 1000:,.1f}",
    "of it CPU": lambda result: f"{result.p99_cpu_seconds * 1000:,.1f}",
    "evicted": lambda result: str(len(result.evicted)) + (f" +{result.lost} closed" if result.lost else ""),
    "dead, scans": lambda result: str(result.dead_scans) if result.is_dead_gone else "still there",
    "dead s": lambda result: f"{result.dead_seconds:.1f}",
    "newcomer s": lambda result: f"{result.newcomer_seconds:.2f}",
    "livez ms": lambda result: f"{result.livez_seconds * 1000:,.0f}",
    "refused": lambda result: f"{result.refused_brokers + result.refused_clients}/{result.newcomers}",
    "stop s": lambda result: f"{result.stopped_seconds:.1f}",
    "missed": lambda result: " ".join(missed(result)),
}


_ON_PAGE: Final = (
    *("attack", "sent MiB", "CPU s/MiB", "peak MiB", "tables MiB", "longest wait ms", "p99 quiet ms", "p99 ms"),
    *("refused", "missed"),
)


def text(results: Sequence[Result]) -> str:
    """The table for a terminal."""
    return table.text(_rows(results, list(_COLUMNS)), range(1, len(_COLUMNS) - 1))


def markdown(results: Sequence[Result]) -> str:
    """The table for a page: attacks that take more than half of a target; the JSON file has all attacks and figures."""
    return table.markdown(_rows(list(filter(takes_half, results)), _ON_PAGE), range(1, len(_ON_PAGE) - 1))


def takes_half(result: Result) -> bool:
    """True for an attack that misses a target, or takes more than half of its CPU, memory, p99 or stall target."""
    return bool(
        missed(result)
        or (result.peers == 1 and cpu_per_mib(result) > CPU_PER_MIB / 2)
        or result.peak_mib - result.tables_mib > _most_mib(result) / 2
        or result.p99_seconds > _longest_p99(result.p99_quiet_seconds) / 2
        or (result.peers <= FEW_PEERS and result.longest_seconds > STALL_SECONDS / 2)
    )


def _rows(results: Sequence[Result], columns: Sequence[str]) -> list[Sequence[str]]:
    return [columns, *([_COLUMNS[column](result) for column in columns] for result in results)]


def summary(results: Sequence[Result], unmeasured: Sequence[str] = ()) -> str:
    """The number of attacks within their targets, the attacks without figures, and the largest wait and memory."""
    bad = [result.name for result in results if missed(result)]
    met = f"{len(results) - len(bad)} of {len(results)} attacks are within all targets"
    lines = [f"{met}; not within: {', '.join(bad)}." if bad else f"{met}."]
    if unmeasured:
        lines.append(f"Not measured: {', '.join(unmeasured)}.")
    if waits := [result.longest_seconds for result in results if result.peers <= FEW_PEERS]:
        lines.append(f"The longest wait with at most {FEW_PEERS} addresses is {max(waits) * 1000:,.0f} ms.")
    if memory := [result.peak_mib - result.tables_mib for result in results if result.peers == 1]:
        lines.append(f"One peer costs at most {max(memory):,.0f} MiB beside the tables.")
    return "\n".join(lines)
