"""Measures one attack: a fresh server, well-behaved peers, a broker that hangs, and the attacker."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.abuse.attacker import Attacker
from benchmarks.abuse.attacks import Attack
from benchmarks.abuse.costs import PROBE_SECONDS, STOPPING_SECONDS, Costs, Durations
from benchmarks.abuse.memory_group import MemoryGroup
from benchmarks.abuse.well_behaved import (
    DEAD,
    PATIENCE_SECONDS,
    PULL,
    TABLE_BYTES,
    Seen,
    has_broker,
    registration,
    well_behaved_peers,
)
from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon, expiring, temporary_directory
from benchmarks.harness.wire import Wire
from namesrv_remoting.codes import SerializeType

FULL: Final = Durations(
    quiet_seconds=2.0, attack_seconds=6.0, heartbeat_seconds=1.0, expiry_seconds=4.0, scan_seconds=0.5
)
SHORT: Final = Durations(
    quiet_seconds=0.5, attack_seconds=1.8, heartbeat_seconds=0.3, expiry_seconds=1.2, scan_seconds=0.15
)


def run(bench: Bench, name: str, attack: Attack, durations: Durations) -> list[Figure]:
    """Start a server, observe it without an attack, attack it, observe it again, and stop it.

    Raises:
        BenchError: the attack cannot be measured, for example because the server has ended, or refused the attacker.
    """
    with ExitStack() as stack:
        server, group = _started(bench, attack, durations, stack)
        # stops the well-behaved peers, and returns what they have observed
        stop_peers = stack.enter_context(
            well_behaved_peers(server, durations.heartbeat_seconds, durations.expiry_seconds)
        )
        # This connection is opened before attackers take all slots.
        watcher = stack.enter_context(Wire(server, PATIENCE_SECONDS))
        seconds = max(attack.seconds, durations.attack_seconds)
        attacker = stack.enter_context(Attacker(server.port, server.http_port, seconds))
        send = attack.prepare(attacker)
        # Processor time is read after the scrape, which takes some as well.
        tables_before, rested_at, cpu_before = server.metric(TABLE_BYTES), time.monotonic(), server.cpu_seconds()
        resident_before = server.status_bytes()
        idle_rate = _rest(server, durations.quiet_seconds)
        _reset_peak(server)
        times = _attacked(server, attacker, send, partial(_is_dead_evicted, watcher, durations.scan_seconds))
        attacker.check()
        # The server may still work on the attack.
        _rest(server, durations.quiet_seconds)
        idle_seconds = idle_rate * (time.monotonic() - rested_at)
        cpu_seconds = server.cpu_seconds() - cpu_before - idle_seconds
        is_responding = _is_responding(bench, server)
        peak_bytes = server.status_bytes("VmHWM") - resident_before
        seen = stop_peers()
        group_peak_bytes, kills = (0, 0) if group is None else (group.peak_bytes, group.kills)
        stopped_seconds, exit_code = server.terminated(PATIENCE_SECONDS)
    costs = Costs(
        name=name,
        attack=attack,
        durations=durations,
        weight=attacker.weight,
        attempts=attacker.attempts,
        successes=attacker.successes,
        cpu_seconds=max(0.0, cpu_seconds),
        peak_bytes=peak_bytes,
        table_bytes=max((table_bytes - tables_before for table_bytes in seen.table_bytes), default=0.0),
        group_peak_bytes=group_peak_bytes,
    )
    return [
        *costs.figures(),
        *peer_figures(costs, seen, times, quiet_since=rested_at),
        costs.none("dead", not times.is_dead_evicted),
        costs.none("killed", kills),
        costs.none("hung", not is_responding or exit_code is None),
        costs.figure("stop", "stop", "seconds", stopped_seconds, target=at_most(STOPPING_SECONDS)),
    ]


@dataclass(frozen=True, slots=True)
class Times:
    """Times on the monotonic clock, and what became of the dead broker."""

    # start and end of the attack; the last request of the dead broker is at the start
    began: float
    ended: float
    is_dead_evicted: bool

    def overlap(self, at: float, seconds: float) -> bool:
        """True for a request that was sent at this time, took so long, and was in flight during the attack."""
        return self.began <= at + seconds and at <= self.ended


def _started(bench: Bench, attack: Attack, durations: Durations, stack: ExitStack) -> tuple[Server, MemoryGroup | None]:
    """The server that is attacked, with its earlier registration, and the memory cgroup in which it runs, if any."""
    configured = attack.configured(stack.enter_context(temporary_directory("abuse")))
    flags = (*configured, *expiring(durations.expiry_seconds, durations.scan_seconds))
    limit_bytes = attack.memory_limit_bytes
    group = stack.enter_context(MemoryGroup(limit_bytes)) if limit_bytes else None
    prefix = () if group is None else group.prefix
    server = stack.enter_context(daemon(bench, *flags, shares=(), prefix=prefix))
    if seed := attack.seed():
        stack.enter_context(Wire(server, PATIENCE_SECONDS)).success(seed)
    return server, group


def _rest(server: Server, seconds: float) -> float:
    """Wait while only the well-behaved peers work; return the server's processor time for each second."""
    cpu_seconds = server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - cpu_seconds) / seconds


def _attacked(
    server: Server, attacker: Attacker, send: Callable[[], object], is_dead_evicted: Callable[[], bool]
) -> Times:
    """Let a broker hang, run the attack, and wait for the broker's eviction."""
    with Wire(server, PATIENCE_SECONDS) as dead:
        dead.success(registration(DEAD, SerializeType.JSON))
        began = time.monotonic()
        attacker.begin()
        send()
        ended = time.monotonic()
        attacker.close()
        return Times(began, ended, is_dead_evicted())


def _is_dead_evicted(watcher: Wire, scan_seconds: float) -> bool:
    """Wait until the dead broker is evicted; False if a server with any processor time would have done so."""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < gives_up_at:
        if not has_broker(DEAD, watcher.success(PULL).body):
            return True
        time.sleep(scan_seconds)
    return False


def _is_responding(bench: Bench, server: Server) -> bool:
    """True if the server responds to a request for its metrics."""
    try:
        server.page("/metrics")
    except BenchError as error:
        bench.progress(str(error))
        return False
    return True


def peer_figures(costs: Costs, seen: Seen, times: Times, *, quiet_since: float) -> list[Figure]:
    """What the well-behaved peers have seen of the attack."""
    during = [pull for pull in seen.pulls if times.overlap(pull.sent_at, pull.seconds)]
    before = [pull for pull in seen.pulls if quiet_since < pull.sent_at < times.began]
    newcomers = [one for one in seen.newcomers if times.overlap(one.came_at, one.seconds)]
    with_dead = [pull.sent_at + pull.seconds for pull in seen.pulls if pull.has_dead]
    overdue = max(with_dead, default=times.began) - times.began
    probes = [seconds for at, seconds in seen.probes if times.overlap(at, seconds)]
    longest_probe = max(probes, default=0.0)
    return [
        # Pulls after the attack are not quiet, because the server may still work on what the attacker sent.
        *costs.waits(during, before),
        *costs.newcomers(newcomers),
        costs.overdue(overdue),
        costs.figure("livez", "liveness probe", "seconds", longest_probe, target=at_most(PROBE_SECONDS)),
        costs.none("evicted", len({name for pull in seen.pulls for name in pull.evicted}) + seen.lost),
    ]


def _reset_peak(server: Server) -> None:
    """Reset the peak memory VmHWM to the memory that is resident now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")
