"""Starts servers on a core of their own, reads their resources from /proc, and stops them."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.harness.build import program as built
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench

# A server that takes longer than this to listen or to exit counts as broken.
_PATIENCE_SECONDS: Final = 60.0
# HTTP is served during every attack, if slowly.
_PAGE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.005
# The server does not wait when it starts or stops, and no broker expires during a measurement.
_FLAGS: Final = (
    *("--listen-host", "127.0.0.1", "--listen-port", "0", "--log-format", "json", "--drain-seconds", "0"),
    # HTTP stays on, as by default, but on a free port.
    *("--http-listen", "127.0.0.1:0"),
    *("--wait-for-service-seconds", "0", "--broker-expiry-seconds", "86400"),
)

# Prefixes of environment variables that configure our programs, RocketMQ or a JVM.
_CONFIGURING: Final = ("NAMESRV_", "ROCKETMQ_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# Crowds come from one address, which may use the whole of what addresses share.
WITHOUT_SHARES: Final = ("--share-per-ip-percent", "100")

# As by default, a restarted server serves no routes before its brokers are back.
WAITING: Final = ("--wait-for-service-seconds", "45")

# Most subjects run without the heartbeat log. In seconds of load nearly every response would add a line to it: every
# pull is the first on its connection, and heartbeats come as fast as those of thousands of brokers.
WITHOUT_LOG: Final = ("--heartbeat-log-dir", "")


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that listens on 127.0.0.1."""

    pid: int
    port: int
    # 0: the server serves no HTTP, or nothing else
    http_port: int = 0
    # from exec until the output or a first response showed that the server listens
    listening_after_seconds: float = 0.0
    # file with standard output and standard error
    output: Path = Path(os.devnull)

    @property
    def address(self) -> str:
        """127.0.0.1 and the port, as clients and agents expect it."""
        return f"127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        """The entries of a daemon's log; a line that is not JSON (a traceback) is a critical entry without an event."""
        lines = self.output.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) if line.startswith("{") else _not_logged(line) for line in lines]

    def status_bytes(self, name: str = "VmRSS") -> int:
        """A size in /proc/PID/status; by default the resident memory."""
        return status_bytes(Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"), name)

    def descriptors(self) -> int:
        """The number of open file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def cpu_seconds(self) -> float:
        """Processor time of all threads so far, in user and kernel mode.

        /proc/PID/stat counts in hundredths of a second, the process's clock in nanoseconds. The clock's id is the
        value that clock_getcpuclockid(3) returns on Linux: ~pid shifted by three bits, and 2 for CPUCLOCK_SCHED.
        """
        return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e9

    def loop_seconds(self) -> float:
        """Processor time of the main thread, which runs the event loop."""
        schedstat = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        return int(schedstat.read_text(encoding="ascii").split()[0]) / 1e9

    def page(self, path: str) -> str:
        """A page that the server serves over HTTP. Raises BenchError."""
        url = f"http://127.0.0.1:{self.http_port or self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=_PAGE_SECONDS) as page:
                text: str = page.read().decode()
                return text
        except (OSError, HTTPException) as error:
            raise BenchError(f"{url}: {error}") from error

    def metric(self, name: str) -> float:
        """The value of a metric without labels. Raises BenchError."""
        match = re.search(rf"^{name} (\S+)$", self.page("/metrics"), re.MULTILINE)
        if match is None:
            raise BenchError(f"no {name} in the metrics")
        return float(match[1])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    @property
    def is_running(self) -> bool:
        """True until the process ends."""
        return self._ended() is None

    def _ended(self) -> os.waitid_result | None:
        # WNOWAIT: the Popen object of the process reaps it later.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def terminated(self, patience_seconds: float) -> tuple[float, int | None]:
        """Send SIGTERM, and return the seconds until the exit and the exit code; None if the process did not exit."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        while (waited := time.monotonic() - began) < patience_seconds:
            if (ended := self._ended()) is not None:
                return waited, ended.si_status
            time.sleep(_LOOK_SECONDS)
        return waited, None


def _not_logged(line: str) -> dict[str, Any]:
    return {"level": "critical", "event": "", "line": line}


def status_bytes(status: str, name: str = "VmRSS") -> int:
    """A size in a /proc/PID/status.

    Raises:
        BenchError: the status has no such size, because the process has ended.
    """
    match = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if match is None:
        raise BenchError(f"no {name} in /proc/PID/status: the server has ended")
    return int(match[1]) * 1024


def expiring(expiry_seconds: float, scan_seconds: float) -> tuple[str, ...]:
    """The flags of a server whose brokers expire, and which looks for silent brokers at this interval."""
    return ("--broker-expiry-seconds", str(expiry_seconds), "--scan-interval-seconds", str(scan_seconds))


def environment() -> dict[str, str]:
    """Our environment without variables that configure a NameServer or a JVM: only the flags configure servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_CONFIGURING)}


def end_in_order() -> None:
    """Exit on SIGTERM through SystemExit, so that every context manager stops its server."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        sys.exit(128 + number)
    # Raised here, SystemExit could end a single task, whose error would be logged, or be swallowed by a finalizer.
    loop.call_soon_threadsafe(sys.exit, 128 + number)


# -- the daemon, the limit server and the console ---------------------------------------------------------------------


def daemon(
    bench: Bench,
    *flags: str,
    shares: Sequence[str] = WITHOUT_SHARES,
    environ: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> AbstractContextManager[Server]:
    """A NameServer, with a fresh data directory unless the flags name one, until the block ends.

    `prefix` is a command that executes the rest of its command line.
    """

    def program(home: Path) -> Program:
        command = [*prefix, sys.executable, "-m", "namesrv", *_FLAGS, *shares, "--data-dir", str(home), *flags]
        return Program("namesrv", command, daemon_ports, home, environ or {})

    return started_at_home(bench, program)


def limit(bench: Bench, body_bytes: int) -> AbstractContextManager[Server]:
    """The limit server, whose responses have bodies of that size, until the block ends."""
    command = [str(built("limit")), str(body_bytes)]
    return started_at_home(bench, lambda home: Program("limit", command, daemon_ports, home))


def web_console(bench: Bench, servers: Sequence[Server]) -> AbstractContextManager[Server]:
    """The web console of these servers, until the block ends."""
    named = [word for server in servers for word in ("--server", server.address)]
    command = [sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0", *named]
    return started_at_home(bench, lambda home: Program("namesrv-console", command, _console_ports, home))


def daemon_ports(log: str) -> Sequence[int]:
    """The remoting port and the HTTP port in the log of a daemon or limit server; empty until it listens."""
    for line in log.splitlines():
        if '"event":"listening"' in line and line.endswith("}"):
            entry = json.loads(line)
            return [int(one[0].rpartition(":")[2]) for one in (entry["addresses"], entry.get("http")) if one]
    return ()


def _console_ports(output: str) -> Sequence[int]:
    return [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)/", output)]


@contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """A temporary directory, until the block ends."""
    with tempfile.TemporaryDirectory(prefix=f"namesrv-bench-{name}-") as path:
        yield Path(path)


# -- any server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A server to be started."""

    name: str
    command: Sequence[str]
    # Returns the ports on which the server serves, given its output so far; empty, or an OSError, until it does.
    ports: Callable[[str], Sequence[int]]
    # working directory of the server; the file with its output is there
    home: Path
    # environment variables in addition to those of `environment`
    environ: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def started_at_home(bench: Bench, program: Callable[[Path], Program]) -> Iterator[Server]:
    """A running server, whose program is made for an empty home, until the block ends. Raises BenchError."""
    with temporary_directory("home") as home, started(bench, program(home)) as server:
        yield server


@contextmanager
def started(bench: Bench, program: Program) -> Iterator[Server]:
    """A running server, from when it serves until the block ends. Raises BenchError."""
    path = program.home / "output"
    with path.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [*_pinned(bench), *program.command],
            env={**environment(), **program.environ},
            cwd=program.home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        while not (ports := _ports(program, printed := path.read_text(errors="replace"))):
            waited = time.monotonic() - began
            if process.poll() is not None or waited > _PATIENCE_SECONDS:
                why = "does not serve" if process.poll() is None else "ended"
                last = " ".join(printed.split())[-300:] or "no output"
                raise BenchError(f"{program.name} {why} after {waited:.0f} s: {last}")
            time.sleep(_LOOK_SECONDS)
        http_port = ports[1] if len(ports) > 1 else 0
        yield Server(process.pid, ports[0], http_port, time.monotonic() - began, path)
    finally:
        _end(process)


def _ports(program: Program, output: str) -> Sequence[int]:
    try:
        return program.ports(output)
    except OSError:
        # The server does not listen yet.
        return ()


def _pinned(bench: Bench) -> Sequence[str]:
    """A command prefix that starts a server on its core.

    Moving the process later would be too late: JVMs, Go and Tokio count cores and start threads at once.
    """
    if bench.cores.server is None:
        return ()
    taskset = shutil.which("taskset")
    if taskset is None:
        raise BenchError("no taskset on PATH (util-linux): the server has to be on a core of its own")
    return (taskset, "--cpu-list", str(bench.cores.server))


def _end(process: "subprocess.Popen[bytes]") -> None:
    # SIGTERM has no effect on a process that SIGSTOP has stopped.
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
