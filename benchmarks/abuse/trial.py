"""Trial of one attack against a fresh server, with well-behaved peers beside it."""

import contextlib
import fcntl
import json
import mmap
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from benchmarks.abuse.attacker import Attacker
from benchmarks.abuse.attacks import Attack
from benchmarks.abuse.bystanders import (
    DEAD,
    PATIENCE_SECONDS,
    TABLE_BYTES,
    Newcomer,
    Pull,
    broker_frame,
    has_broker,
    metric,
    route_frame,
    scan_count,
    scraped,
)
from benchmarks.abuse.memory_group import MemoryGroup
from benchmarks.abuse.network import PrivateNetwork
from benchmarks.figures import BenchError
from benchmarks.rounds import Bench
from benchmarks.seeding import Wire
from benchmarks.servers import DAEMON_FLAGS, ROOT, Server, daemon, environment, owned
from namesrv_remoting.codes import SerializeType

_MIB: Final = 1024 * 1024
# beyond those within the expiry: the puller's own interval, and a scan that is late
_LATE_SCANS: Final = 2
# how much later than its expiry and a scan a dead broker may be gone
_LATE_SECONDS: Final = 0.2
# After this many times the scans that a dead broker may survive, the trial stops waiting for its end. A server that is
# starved of processor time credits the broker with that, and makes more scans.
_SCANS_SHARE: Final = 10


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each part of a trial takes, and how soon a silent broker has to be gone."""

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


FULL: Final = Pace(2.0, 6.0, 1.0, 4.0, 0.5)
SHORT: Final = Pace(0.5, 1.8, 0.3, 1.2, 0.15)


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
    # the puller's longest wait, in all, and of it the computing of the server
    longest_seconds: float
    longest_cpu_seconds: float
    # upper bound of the bucket of the longest delay that the server measured itself; None when it shows none
    lag_seconds: float | None
    p50_seconds: float
    p99_quiet_seconds: float
    p99_seconds: float
    # the same of what the server computed between a question and its answer
    p99_quiet_cpu_seconds: float
    p99_cpu_seconds: float
    # live brokers that were missing in an answer
    evicted: tuple[str, ...]
    # connections of those who behave that the server closed
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
    # whether it answers a newcomer's request for metrics when everything is over, and ends when told to
    is_answering: bool


def run(bench: Bench, name: str, attack: Attack, pace: Pace) -> Result:
    """Start a server, watch it in peace, attack it, watch it again, stop it.

    Raises:
        BenchError: it cannot be measured, as when the server has ended.
    """
    attacking = attack.prepared()
    with ExitStack() as stack:
        if attack.is_ipv6:
            stack.enter_context(PrivateNetwork())
        http_port = free_port()
        flags = (*stack.enter_context(_settings(attack)), *pace.flags, "--http-listen", f"127.0.0.1:{http_port}")
        http_url = f"{'https' if '--http-tls' in flags else 'http'}://127.0.0.1:{http_port}"
        group = stack.enter_context(MemoryGroup(attack.memory_limit_bytes)) if attack.memory_limit_bytes else None
        started = (
            _unread_daemon(bench, *flags)
            if attack.is_unread
            else daemon(bench, *flags, shares=(), prefix=() if group is None else group.prefix)
        )
        server = stack.enter_context(started)
        if seed := attack.seed():
            stack.enter_context(Wire(server, PATIENCE_SECONDS)).ask_well(seed)
        beside = stack.enter_context(_Bystanders(server, http_url, pace))
        # connects before the attackers, who may take all places
        watcher = stack.enter_context(Wire(server, PATIENCE_SECONDS))
        before = _Reading.of(server, http_url)
        time.sleep(pace.quiet_seconds)
        idle = server.cpu_seconds() - before.cpu_seconds
        _reset_peak(server)
        seconds = max(attack.seconds, pace.attack_seconds)
        attacker = stack.enter_context(Attacker(server.port, http_port, seconds, is_ipv6=attack.is_ipv6))
        sending = partial(attacking, attacker) if attack.opening is None else attack.opening(attacker)
        with Wire(server, PATIENCE_SECONDS) as dead:
            dead.ask_well(broker_frame(DEAD, SerializeType.JSON))
            died_at = time.monotonic()
            scans, began = scan_count(scraped(http_url)), time.monotonic()
            if attack.spare_files:
                _spare(server, attack.spare_files)
            attacker.begin()
            sending()
            ended = time.monotonic()
            attacker.close()
            is_dead_gone = _is_dead_gone(watcher, http_url, scans + _SCANS_SHARE * pace.most_scans, pace)
        # whatever it still computes
        time.sleep(pace.quiet_seconds)
        cpu_seconds = server.cpu_seconds()
        watched_seconds = time.monotonic() - before.at
        try:
            after, is_answering = _Reading.of(server, http_url), True
        except BenchError as error:
            bench.progress(str(error))
            after, is_answering = _Reading.of(server, None), False
        seen = beside.seen()
        group_peak, kills = (0, 0) if group is None else (group.peak_bytes, group.kills)
        stopped_seconds = _stopped(server)
    last_dead = max((pull.asked_at for pull in seen.pulls if pull.has_dead), default=0.0)
    shown_until = max((pull.asked_at + pull.seconds for pull in seen.pulls if pull.has_dead), default=died_at)
    dead_scans = max((count - scans for at, count, _ in seen.metrics if at < last_dead), default=0)
    during = [pull for pull in seen.pulls if began <= pull.asked_at + pull.seconds and pull.asked_at <= ended]
    quiet = [pull for pull in seen.pulls if before.at < pull.asked_at < began or ended + 0.2 < pull.asked_at]
    newcomers = [one for one in seen.newcomers if began <= one.came_at <= ended]
    return Result(
        name=name,
        what=attack.what,
        peers=attack.peers,
        may_refuse_clients=attack.may_refuse_clients,
        may_refuse_brokers=attack.may_refuse_brokers,
        sent_mib=attacker.sent_bytes / _MIB,
        weight_mib=attacker.weight / _MIB,
        closed=attacker.closed,
        cpu_seconds=max(0.0, cpu_seconds - before.cpu_seconds - idle / pace.quiet_seconds * watched_seconds),
        peak_mib=(after.peak_bytes - before.resident_bytes) / _MIB,
        tables_mib=max((held - before.table_bytes for _, _, held in seen.metrics), default=0.0) / _MIB,
        limit_mib=attack.memory_limit_bytes / _MIB,
        group_peak_mib=group_peak / _MIB,
        kills=kills,
        held_mib=(after.resident_bytes - before.resident_bytes) / _MIB,
        longest_seconds=max((pull.seconds for pull in during), default=0.0),
        longest_cpu_seconds=max((pull.cpu_seconds for pull in during), default=0.0),
        lag_seconds=before.longest_lag_until(after),
        p50_seconds=percentile((pull.seconds for pull in during), 50),
        p99_quiet_seconds=p99(pull.seconds for pull in quiet),
        p99_seconds=p99(pull.seconds for pull in during),
        p99_quiet_cpu_seconds=p99(pull.cpu_seconds for pull in quiet),
        p99_cpu_seconds=p99(pull.cpu_seconds for pull in during),
        evicted=tuple(sorted({name for pull in seen.pulls for name in pull.evicted})),
        lost=seen.lost,
        is_dead_gone=is_dead_gone,
        dead_scans=max(0, dead_scans),
        most_scans=pace.most_scans,
        dead_seconds=shown_until - died_at,
        most_dead_seconds=pace.most_dead_seconds,
        livez_seconds=max((took for at, took in seen.probes if began <= at + took and at <= ended), default=0.0),
        refused_clients=sum(1 for one in newcomers if one.refused and not one.is_broker),
        refused_brokers=sum(1 for one in newcomers if one.refused and one.is_broker),
        newcomer_seconds=max((one.seconds for one in newcomers if not one.refused), default=0.0),
        newcomers=len(newcomers),
        stopped_seconds=stopped_seconds,
        is_answering=is_answering and stopped_seconds < PATIENCE_SECONDS,
    )


@contextmanager
def _settings(attack: Attack) -> Iterator[tuple[str, ...]]:
    """The flags that an attack needs; the files that they name are there until the block ends."""
    hosts = ("--listen-host", "127.0.0.1,::1") if attack.is_ipv6 else ()
    with tempfile.TemporaryDirectory(prefix="namesrv-abuse-") as directory:
        yield (*hosts, *attack.flags, *attack.configured(Path(directory)))


def p99(seconds: Iterable[float]) -> float:
    """What one in a hundred exceeds; 0 of none."""
    return percentile(seconds, 99)


def percentile(seconds: Iterable[float], percent: int) -> float:
    """What so many in a hundred do not exceed; 0 of none."""
    ordered = sorted(seconds)
    return 0.0 if not ordered else ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _is_dead_gone(watcher: Wire, http_url: str, scans: int, pace: Pace) -> bool:
    """Wait until the dead broker is gone, or so many scans were made."""
    while True:
        is_last = scan_count(scraped(http_url)) > scans
        if not has_broker(DEAD, watcher.ask_well(route_frame()).body):
            return True
        if is_last:
            return False
        time.sleep(pace.scan_seconds)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


# -- the server, from outside ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a server's process and its metrics say at one moment."""

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
        status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
        # after the scrape, which costs something, too
        return cls(
            time.monotonic(),
            server.cpu_seconds(),
            _kib(status, "VmRSS"),
            _kib(status, "VmHWM"),
            table_bytes,
            _lags(metrics),
        )

    def longest_lag_until(self, after: "_Reading") -> float | None:
        """The bucket of the longest delay between the two."""
        new = {bound: count - self.lags.get(bound, 0) for bound, count in after.lags.items()}
        total = max(new.values(), default=0)
        return next((bound for bound, count in sorted(new.items()) if count == total), None)


def _lags(metrics: str) -> dict[float, int]:
    found = re.findall(r'^nameserver_eventloop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', metrics, re.MULTILINE)
    return {float(bound): int(float(count)) for bound, count in found}


def _kib(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise BenchError(f"no {name} in /proc/PID/status: the server has ended")
    return int(found[1]) * 1024


def _spare(server: Server, files: int) -> None:
    """Let it open only so many more."""
    most = len(list(Path(f"/proc/{server.pid}/fd").iterdir())) + files
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (most, most))


def _reset_peak(server: Server) -> None:
    """Let VmHWM begin again at what is resident now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")


def _stopped(server: Server) -> float:
    """How long it takes to leave."""
    asked_at = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    while time.monotonic() - asked_at < PATIENCE_SECONDS:
        # seen, and left for whoever started it
        if os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.01)
    return time.monotonic() - asked_at


def _await_port(port: int) -> None:
    """Return when somebody listens there."""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < gives_up_at:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"nobody listens on port {port} within {PATIENCE_SECONDS:g} s")


@contextmanager
def _unread_daemon(bench: Bench, *flags: str) -> Iterator[Server]:
    """As `daemon`, but its standard error is a pipe that nobody reads."""
    port = free_port()
    reading, writing = os.pipe()
    # one page, which a few lines fill
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    with tempfile.TemporaryDirectory(prefix="namesrv-abuse-") as data_dir:
        command = [sys.executable, "-m", "namesrv", *DAEMON_FLAGS, "--data-dir", data_dir, *flags]
        command += ["--listen-port", str(port)]
        started = time.monotonic()
        process = subprocess.Popen(command, stderr=writing, text=True, env=environment(), cwd=data_dir)
        os.close(writing)
        try:
            with owned(bench, process):
                _await_port(port)
                yield Server(process.pid, port, time.monotonic() - started)
        finally:
            os.close(reading)


# -- those who behave --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    pulls: list[Pull]
    newcomers: list[Newcomer]
    lost: int
    # when, searches for silent brokers since the start, memory of the tables
    metrics: list[tuple[float, int, float]]
    # of each liveness probe: when it began, seconds until the response
    probes: list[tuple[float, float]]


class _Bystanders:
    """The process of bystanders.py, from when all are registered until the block ends."""

    def __init__(self, server: Server, http_url: str, pace: Pace) -> None:
        command = [sys.executable, "-m", "benchmarks.abuse.bystanders"]
        command += ["--port", str(server.port), "--http-url", http_url, "--pid", str(server.pid)]
        command += ["--heartbeat-seconds", str(pace.heartbeat_seconds), "--expiry-seconds", str(pace.expiry_seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> Self:
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            self.__exit__()
            raise BenchError("brokers cannot be registered")
        return self

    def seen(self) -> _Seen:
        """What they have seen until now; there is no more."""
        output, _ = self._process.communicate("", 2 * PATIENCE_SECONDS)
        said = json.loads(output)
        pulls = [Pull(*pull) for pull in said["pulls"]]
        return _Seen(
            pulls, [Newcomer(*one) for one in said["newcomers"]], said["lost"], said["metrics"], said["probes"]
        )

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
