"""Measures one attack: a fresh server, well-behaved peers, a broker that hangs, and the attacker."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

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

FULL: Final = Durations(2.0, 6.0, 1.0, 4.0, 0.5)
SHORT: Final = Durations(0.5, 1.8, 0.3, 1.2, 0.15)


def run(bench: Bench, name: str, attack: Attack, durations: Durations) -> list[Figure]:
    """Start a server, observe it without an attack, attack it, observe it again, and stop it.

    Raises:
        BenchError: the attack cannot be measured, for example because the server has ended, or refused the attacker.
    """
    with ExitStack() as stack:
        scenario = _Scenario(bench, attack, durations, stack)
        server, group = scenario.server, scenario.group
        attacker = stack.enter_context(scenario.attacker())
        send = attack.prepare(attacker)
        before = _Resources.of(server)
        idle_rate = scenario.rest()
        _reset_peak(server)
        times = scenario.attack(attacker, send)
        attacker.check()
        # The server may still work on the attack.
        scenario.rest()
        idle_seconds = idle_rate * (time.monotonic() - before.at)
        cpu_seconds = server.cpu_seconds() - before.cpu_seconds - idle_seconds
        is_responding = scenario.is_responding()
        peak_bytes = server.status_bytes("VmHWM") - before.resident_bytes
        seen = scenario.seen()
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
        table_bytes=max((table_bytes - before.table_bytes for table_bytes in seen.table_bytes), default=0.0),
        group_peak_bytes=group_peak_bytes,
    )
    return [
        *costs.figures(),
        *peer_figures(costs, seen, times, quiet_since=before.at),
        costs.none("dead", not times.is_dead_evicted),
        costs.none("killed", kills),
        costs.none("hung", not is_responding or exit_code is None),
        costs.figure("stop", "stop", "seconds", stopped_seconds, target=at_most(STOPPING_SECONDS)),
    ]


@dataclass(frozen=True, slots=True)
class Times:
    """Times on the monotonic clock, and what became of the dead broker."""

    # last request of the dead broker
    died_at: float
    # start and end of the attack
    began: float
    ended: float
    is_dead_evicted: bool

    def overlap(self, at: float, seconds: float) -> bool:
        """True for a request that was sent at this time, took so long, and was in flight during the attack."""
        return self.began <= at + seconds and at <= self.ended


class _Scenario:
    """A server that is attacked, its well-behaved peers, and the phases of the measurement."""

    def __init__(self, bench: Bench, attack: Attack, durations: Durations, stack: ExitStack) -> None:
        self._bench = bench
        self._attack = attack
        self._durations = durations
        configured = attack.configured(stack.enter_context(temporary_directory("abuse")))
        flags = (*configured, *expiring(durations.expiry_seconds, durations.scan_seconds))
        limit_bytes = attack.memory_limit_bytes
        self.group = stack.enter_context(MemoryGroup(limit_bytes)) if limit_bytes else None
        prefix = () if self.group is None else self.group.prefix
        self.server = stack.enter_context(daemon(bench, *flags, shares=(), prefix=prefix))
        if seed := attack.seed():
            stack.enter_context(Wire(self.server, PATIENCE_SECONDS)).success(seed)
        # stops the well-behaved peers, and returns what they have observed
        self.seen = stack.enter_context(
            well_behaved_peers(self.server, durations.heartbeat_seconds, durations.expiry_seconds)
        )
        # This connection is opened before attackers take all slots.
        self._watcher = stack.enter_context(Wire(self.server, PATIENCE_SECONDS))

    def rest(self) -> float:
        """Wait while only the well-behaved peers work; return the server's processor time for each second."""
        cpu_seconds = self.server.cpu_seconds()
        time.sleep(self._durations.quiet_seconds)
        return (self.server.cpu_seconds() - cpu_seconds) / self._durations.quiet_seconds

    def attacker(self) -> Attacker:
        """The attacker, whose time begins with `attack`."""
        seconds = max(self._attack.seconds, self._durations.attack_seconds)
        return Attacker(self.server.port, self.server.http_port, seconds)

    def attack(self, attacker: Attacker, send: Callable[[], object]) -> Times:
        """Let a broker hang, run the attack, and wait for the broker's eviction."""
        with Wire(self.server, PATIENCE_SECONDS) as dead:
            dead.success(registration(DEAD, SerializeType.JSON))
            died_at = time.monotonic()
            began = time.monotonic()
            attacker.begin()
            send()
            ended = time.monotonic()
            attacker.close()
            is_evicted = self._is_dead_evicted()
        return Times(died_at, began, ended, is_evicted)

    def _is_dead_evicted(self) -> bool:
        """Wait until the dead broker is evicted; False if a server with any processor time would have done so."""
        gives_up_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < gives_up_at:
            if not has_broker(DEAD, self._watcher.success(PULL).body):
                return True
            time.sleep(self._durations.scan_seconds)
        return False

    def is_responding(self) -> bool:
        """True if the server responds to a request for its metrics."""
        try:
            self.server.page("/metrics")
        except BenchError as error:
            self._bench.progress(str(error))
            return False
        return True


def peer_figures(costs: Costs, seen: Seen, times: Times, *, quiet_since: float) -> list[Figure]:
    """What the well-behaved peers have seen of the attack."""
    during = [pull for pull in seen.pulls if times.overlap(pull.sent_at, pull.seconds)]
    before = [pull for pull in seen.pulls if quiet_since < pull.sent_at < times.began]
    newcomers = [one for one in seen.newcomers if times.overlap(one.came_at, one.seconds)]
    with_dead = [pull.sent_at + pull.seconds for pull in seen.pulls if pull.has_dead]
    overdue = max(with_dead, default=times.died_at) - times.died_at
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


@dataclass(frozen=True, slots=True)
class _Resources:
    """Resources that a server uses at one time."""

    at: float
    cpu_seconds: float
    resident_bytes: int
    # memory of the tables as the server estimates it
    table_bytes: float

    @classmethod
    def of(cls, server: Server) -> Self:
        # Processor time is read after the scrape, which takes some as well.
        table_bytes = server.metric(TABLE_BYTES)
        return cls(time.monotonic(), server.cpu_seconds(), server.status_bytes(), table_bytes)
