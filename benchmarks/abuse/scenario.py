"""One attack against a fresh server, with well-behaved peers beside it."""

import contextlib
import json
import re
import resource
import subprocess
import sys
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
from benchmarks.abuse.memory_group import MemoryGroup
from benchmarks.abuse.network import PrivateNetwork
from benchmarks.abuse.others import (
    DEAD,
    PATIENCE_SECONDS,
    PULL,
    TABLE_BYTES,
    Newcomer,
    Pull,
    broker_frame,
    has_broker,
    metric,
    scan_count,
    scraped,
)
from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError, percentile
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Server, daemon
from benchmarks.harness.wire import Wire
from namesrv_remoting.codes import SerializeType

_MIB: Final = 1024 * 1024
# beyond those within the expiry: the puller's own interval, and a scan that is late
_LATE_SCANS: Final = 2
# how much later than its expiry and a scan a dead broker may be gone
_LATE_SECONDS: Final = 0.2
# After this many times the scans that a dead broker may survive, we stop waiting for its end. A server that is starved
# of processor time credits the broker with that, and makes more scans.
_SCANS_SHARE: Final = 10
# Requests that were under way when the attack ended.
_SETTLE_SECONDS: Final = 0.2


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


FULL: Final = Durations(2.0, 6.0, 1.0, 4.0, 0.5)
SHORT: Final = Durations(0.5, 1.8, 0.3, 1.2, 0.15)


@dataclass(frozen=True, slots=True)
class Result:
    """What one attack did."""

    name: str
    what: str
    peers: int
    may_refuse_clients: bool
    may_refuse_brokers: bool
    # what the attacker sent, and the same with a packet at least for each frame and connection
    sent_mib: float
    weight_mib: float
    # of the attacker's
    closed: int
    # of the server's process, beyond what it computes without the attack
    cpu_seconds: float
    peak_mib: float
    # of that the tables', by the server's own estimate: what the attacker may register
    tables_mib: float
    # of the server's memory cgroup: its limit, 0 without one; its peak, sockets included; processes killed
    limit_mib: float
    group_peak_mib: float
    kills: int
    # resident when everything is over
    held_mib: float
    # the puller's longest wait, in all, and of it the server's processor time
    longest_seconds: float
    longest_cpu_seconds: float
    # upper bound of the bucket of the longest delay that the server measured itself; None when it shows none
    lag_seconds: float | None
    p50_seconds: float
    p99_quiet_seconds: float
    p99_seconds: float
    # the same of the server's processor time between a request and its response
    p99_quiet_cpu_seconds: float
    p99_cpu_seconds: float
    # live brokers that were missing in a route
    evicted: tuple[str, ...]
    # connections of well-behaved peers that the server closed
    lost: int
    # whether the dead broker was gone in the end
    is_dead_gone: bool
    # scans for silent brokers that it was seen to survive, and that it may survive
    dead_scans: int
    most_scans: int
    # how long after its last request routes showed it, and may show it
    dead_seconds: float
    most_dead_seconds: float
    # the longest wait of a liveness probe
    livez_seconds: float
    refused_clients: int
    refused_brokers: int
    # the longest wait of a newcomer that was served
    newcomer_seconds: float
    newcomers: int
    # from SIGTERM to the end
    stopped_seconds: float
    # whether it responds to a newcomer's request for metrics when everything is over, and ends with its standard input
    is_answering: bool


def run(bench: Bench, name: str, attack: Attack, durations: Durations) -> Result:
    """Start a server, watch it in peace, attack it, watch it again, stop it.

    Raises:
        BenchError: it cannot be measured, as when the server has ended.
    """
    prepared = attack.prepared()
    with ExitStack() as stack:
        if attack.is_ipv6:
            stack.enter_context(PrivateNetwork())
        flags = (*stack.enter_context(_settings(attack)), *durations.flags)
        group = stack.enter_context(MemoryGroup(attack.memory_limit_bytes)) if attack.memory_limit_bytes else None
        prefix = () if group is None else group.prefix
        server = stack.enter_context(daemon(bench, *flags, shares=(), prefix=prefix, is_unread=attack.is_unread))
        http_url = f"{'https' if '--http-tls' in flags else 'http'}://127.0.0.1:{server.http_port}"
        if seed := attack.seed():
            stack.enter_context(Wire(server, PATIENCE_SECONDS)).success(seed)
        others = stack.enter_context(_Others(server, http_url, durations))
        # connects before the attackers, who may take all connection slots
        watcher = stack.enter_context(Wire(server, PATIENCE_SECONDS))
        before = _Reading.of(server, http_url)
        time.sleep(durations.quiet_seconds)
        idle = server.cpu_seconds() - before.cpu_seconds
        _reset_peak(server)
        seconds = max(attack.seconds, durations.attack_seconds)
        attacker = stack.enter_context(Attacker(server.port, server.http_port, seconds, is_ipv6=attack.is_ipv6))
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
        # Work that is still under way.
        time.sleep(durations.quiet_seconds)
        cpu_seconds = server.cpu_seconds()
        idle *= (time.monotonic() - before.at) / durations.quiet_seconds
        try:
            after, is_answering = _Reading.of(server, http_url), True
        except BenchError as error:
            bench.progress(str(error))
            after, is_answering = _Reading.of(server, None), False
        seen = others.seen()
        group_peak, kills = (0, 0) if group is None else (group.peak_bytes, group.kills)
        stopped_seconds, exit_code = server.terminated(PATIENCE_SECONDS)
    during = [pull for pull in seen.pulls if began <= pull.sent_at + pull.seconds and pull.sent_at <= ended]
    quiet = [pull for pull in seen.pulls if before.at < pull.sent_at < began or ended + _SETTLE_SECONDS < pull.sent_at]
    with_dead = [pull for pull in seen.pulls if pull.has_dead]
    last_dead = max((pull.sent_at for pull in with_dead), default=0.0)
    newcomers = [one for one in seen.newcomers if began <= one.came_at <= ended]
    refused = [one for one in newcomers if one.refused]
    return Result(
        name=name,
        what=attack.what,
        peers=attack.peers,
        may_refuse_clients=attack.may_refuse_clients,
        may_refuse_brokers=attack.may_refuse_brokers,
        sent_mib=attacker.sent_bytes / _MIB,
        weight_mib=attacker.weight / _MIB,
        closed=attacker.closed,
        cpu_seconds=max(0.0, cpu_seconds - before.cpu_seconds - idle),
        peak_mib=(after.peak_bytes - before.resident_bytes) / _MIB,
        tables_mib=max((held - before.table_bytes for _, _, held in seen.metrics), default=0.0) / _MIB,
        limit_mib=attack.memory_limit_bytes / _MIB,
        group_peak_mib=group_peak / _MIB,
        kills=kills,
        held_mib=(after.resident_bytes - before.resident_bytes) / _MIB,
        longest_seconds=percentile((pull.seconds for pull in during), 1),
        longest_cpu_seconds=percentile((pull.cpu_seconds for pull in during), 1),
        lag_seconds=before.longest_lag_until(after),
        p50_seconds=percentile((pull.seconds for pull in during), 0.5),
        p99_quiet_seconds=percentile((pull.seconds for pull in quiet), 0.99),
        p99_seconds=percentile((pull.seconds for pull in during), 0.99),
        p99_quiet_cpu_seconds=percentile((pull.cpu_seconds for pull in quiet), 0.99),
        p99_cpu_seconds=percentile((pull.cpu_seconds for pull in during), 0.99),
        evicted=tuple(sorted({name for pull in seen.pulls for name in pull.evicted})),
        lost=seen.lost,
        is_dead_gone=is_dead_gone,
        dead_scans=max([0, *(count - scans for at, count, _ in seen.metrics if at < last_dead)]),
        most_scans=durations.most_scans,
        dead_seconds=max((pull.sent_at + pull.seconds for pull in with_dead), default=died_at) - died_at,
        most_dead_seconds=durations.most_dead_seconds,
        livez_seconds=max((took for at, took in seen.probes if began <= at + took and at <= ended), default=0.0),
        refused_clients=sum(not one.is_broker for one in refused),
        refused_brokers=sum(one.is_broker for one in refused),
        newcomer_seconds=max((one.seconds for one in newcomers if not one.refused), default=0.0),
        newcomers=len(newcomers),
        stopped_seconds=stopped_seconds,
        is_answering=is_answering and exit_code is not None,
    )


@contextmanager
def _settings(attack: Attack) -> Iterator[tuple[str, ...]]:
    """The flags that an attack needs; the files that they name are there until the block ends."""
    hosts = ("--listen-host", "127.0.0.1,::1") if attack.is_ipv6 else ()
    with tempfile.TemporaryDirectory(prefix="namesrv-abuse-") as directory:
        yield (*hosts, *attack.flags, *attack.configured(Path(directory)))


def _is_dead_gone(watcher: Wire, http_url: str, scans: int, durations: Durations) -> bool:
    """Wait until the dead broker is gone, or so many scans were made."""
    while True:
        is_last = scan_count(scraped(http_url)) > scans
        if not has_broker(DEAD, watcher.success(PULL).body):
            return True
        if is_last:
            return False
        time.sleep(durations.scan_seconds)


def _reset_peak(server: Server) -> None:
    """Let VmHWM begin again at what is resident now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a server's process and its metrics show at one moment."""

    at: float
    cpu_seconds: float
    resident_bytes: int
    peak_bytes: int
    # by the server's own estimate
    table_bytes: float
    # upper bound -> delays of the loop that were not longer, since the start
    lags: dict[float, int]

    @classmethod
    def of(cls, server: Server, http_url: str | None) -> Self:
        metrics = "" if http_url is None else scraped(http_url)
        table_bytes = metric(metrics, TABLE_BYTES) if metrics else 0.0
        lags = re.findall(r'^nameserver_eventloop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', metrics, re.MULTILINE)
        # after the scrape, which costs something, too
        return cls(
            time.monotonic(),
            server.cpu_seconds(),
            server.status_bytes(),
            server.status_bytes("VmHWM"),
            table_bytes,
            {float(bound): int(float(count)) for bound, count in lags},
        )

    def longest_lag_until(self, after: "_Reading") -> float | None:
        """The bucket of the longest delay between the two."""
        new = {bound: count - self.lags.get(bound, 0) for bound, count in after.lags.items()}
        total = max(new.values(), default=0)
        return next((bound for bound, count in sorted(new.items()) if count == total), None)


@dataclass(frozen=True, slots=True)
class _Seen:
    pulls: list[Pull]
    newcomers: list[Newcomer]
    lost: int
    # when, scans for silent brokers since the start, memory of the tables
    metrics: list[tuple[float, int, float]]
    # of each liveness probe: when it began, seconds until the response
    probes: list[tuple[float, float]]


class _Others:
    """The process of others.py, from when all brokers are registered until the block ends."""

    def __init__(self, server: Server, http_url: str, durations: Durations) -> None:
        command = [sys.executable, "-m", "benchmarks.abuse.others"]
        command += ["--port", str(server.port), "--http-url", http_url, "--pid", str(server.pid)]
        command += [
            "--heartbeat-seconds",
            str(durations.heartbeat_seconds),
            "--expiry-seconds",
            str(durations.expiry_seconds),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> Self:
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            self.__exit__()
            raise BenchError("brokers cannot be registered")
        return self

    def seen(self) -> _Seen:
        """What they have observed until now; they end."""
        output, _ = self._process.communicate("", 2 * PATIENCE_SECONDS)
        observed = json.loads(output)
        return _Seen(
            [Pull(*pull) for pull in observed["pulls"]],
            [Newcomer(*one) for one in observed["newcomers"]],
            observed["lost"],
            observed["metrics"],
            observed["probes"],
        )

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
