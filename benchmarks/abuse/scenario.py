"""Measures one attack: a fresh server, well-behaved peers, a broker that hangs, and the attacker."""

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
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
    WellBehavedPeers,
    broker_frame,
    has_broker,
    metric,
    scan_count,
    scraped,
)
from benchmarks.harness.figures import BenchError, Figure, at_most
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import Wire
from namesrv_remoting.codes import SerializeType

# We wait for the dead broker's eviction for this many times the allowed scans: a server that was starved of processor
# time gives brokers that time in addition, and makes more scans.
_SCANS_SHARE: Final = 10
# Pulls sent within this time after the attack do not count as quiet.
_SETTLE_SECONDS: Final = 0.2


FULL: Final = Durations(2.0, 6.0, 1.0, 4.0, 0.5)
SHORT: Final = Durations(0.5, 1.8, 0.3, 1.2, 0.15)


def run(bench: Bench, name: str, attack: Attack, durations: Durations) -> list[Figure]:
    """Start a server, observe it without an attack, attack it, observe it again, and stop it.

    Raises:
        BenchError: the attack cannot be measured, for example because the server has ended.
    """
    prepared = attack.prepared()
    with ExitStack() as stack:
        flags = (*stack.enter_context(_settings(attack)), *durations.flags)
        group = stack.enter_context(MemoryGroup(attack.memory_limit_bytes)) if attack.memory_limit_bytes else None
        prefix = () if group is None else group.prefix
        server = stack.enter_context(daemon(bench, *flags, shares=(), prefix=prefix, is_unread=attack.is_unread))
        http_url = f"{'https' if '--http-tls' in flags else 'http'}://127.0.0.1:{server.http_port}"
        if seed := attack.seed():
            stack.enter_context(Wire(server, PATIENCE_SECONDS)).success(seed)
        peers = stack.enter_context(
            WellBehavedPeers(server, http_url, durations.heartbeat_seconds, durations.expiry_seconds)
        )
        # This connection is opened before attackers take all slots.
        watcher = stack.enter_context(Wire(server, PATIENCE_SECONDS))
        before = _Reading.of(server, http_url)
        time.sleep(durations.quiet_seconds)
        idle = server.cpu_seconds() - before.cpu_seconds
        _reset_peak(server)
        seconds = max(attack.seconds, durations.attack_seconds)
        attacker = stack.enter_context(Attacker(server.port, server.http_port, seconds))
        sending = partial(prepared, attacker) if attack.opening is None else attack.opening(attacker)
        with Wire(server, PATIENCE_SECONDS) as dead:
            dead.success(broker_frame(DEAD, SerializeType.JSON))
            died_at = time.monotonic()
            scans, began = scan_count(scraped(http_url)), time.monotonic()
            if attack.spare_files:
                most = server.descriptors() + attack.spare_files
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (most, most))
            attacker.begin()
            sending()
            ended = time.monotonic()
            attacker.close()
            is_dead_gone = _is_dead_gone(watcher, http_url, scans + _SCANS_SHARE * durations.most_scans, durations)
        # The server may still work on the attack.
        time.sleep(durations.quiet_seconds)
        cpu_seconds = server.cpu_seconds()
        idle *= (time.monotonic() - before.at) / durations.quiet_seconds
        try:
            after, is_answering = _Reading.of(server, http_url), True
        except BenchError as error:
            bench.progress(str(error))
            after, is_answering = _Reading.of(server, None), False
        seen = peers.seen()
        group_peak, kills = (0, 0) if group is None else (group.peak_bytes, group.kills)
        stopped_seconds, exit_code = server.terminated(PATIENCE_SECONDS)
    costs = Costs(
        name=name,
        attack=attack,
        durations=durations,
        weight=attacker.weight,
        cpu_seconds=max(0.0, cpu_seconds - before.cpu_seconds - idle),
        peak_bytes=after.peak_bytes - before.resident_bytes,
        table_bytes=max((held - before.table_bytes for _, _, held in seen.metrics), default=0.0),
        group_peak_bytes=group_peak,
    )
    with_dead = [pull for pull in seen.pulls if pull.has_dead]
    last_dead = max((pull.sent_at for pull in with_dead), default=0.0)
    return [
        *costs.figures(),
        *costs.waits(
            [pull for pull in seen.pulls if began <= pull.sent_at + pull.seconds and pull.sent_at <= ended],
            [p for p in seen.pulls if before.at < p.sent_at < began or ended + _SETTLE_SECONDS < p.sent_at],
        ),
        *costs.newcomers([one for one in seen.newcomers if began <= one.came_at <= ended]),
        *costs.deaths(
            scans=max([0, *(count - scans for at, count, _ in seen.metrics if at < last_dead)]),
            seconds=max((pull.sent_at + pull.seconds for pull in with_dead), default=died_at) - died_at,
        ),
        costs.figure(
            "livez",
            "liveness probe",
            "seconds",
            max((took for at, took in seen.probes if began <= at + took and at <= ended), default=0.0),
            target=at_most(PROBE_SECONDS),
        ),
        costs.none("evicted", len({name for pull in seen.pulls for name in pull.evicted}) + seen.lost),
        costs.none("dead", not is_dead_gone),
        costs.none("killed", kills),
        costs.none("hung", not is_answering or exit_code is None),
        costs.figure("stop", "stop", "seconds", stopped_seconds, target=at_most(STOPPING_SECONDS)),
    ]


@contextmanager
def _settings(attack: Attack) -> Iterator[tuple[str, ...]]:
    """The server's flags for an attack; the files that they name exist until the block ends."""
    with tempfile.TemporaryDirectory(prefix="namesrv-abuse-") as directory:
        yield (*attack.flags, *attack.configured(Path(directory)))


def _is_dead_gone(watcher: Wire, http_url: str, scans: int, durations: Durations) -> bool:
    """Wait until the dead broker is evicted; False if it survives this number of scans."""
    while True:
        is_last = scan_count(scraped(http_url)) > scans
        if not has_broker(DEAD, watcher.success(PULL).body):
            return True
        if is_last:
            return False
        time.sleep(durations.scan_seconds)


def _reset_peak(server: Server) -> None:
    """Reset the peak memory VmHWM to the memory that is resident now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Resources of a server at one time."""

    at: float
    cpu_seconds: float
    resident_bytes: int
    peak_bytes: int
    # as the server estimates it
    table_bytes: float

    @classmethod
    def of(cls, server: Server, http_url: str | None) -> Self:
        metrics = "" if http_url is None else scraped(http_url)
        table_bytes = metric(metrics, TABLE_BYTES) if metrics else 0.0
        # Processor time is read last, because the scrape takes some as well.
        return cls(
            time.monotonic(),
            server.cpu_seconds(),
            server.status_bytes(),
            server.status_bytes("VmHWM"),
            table_bytes,
        )
