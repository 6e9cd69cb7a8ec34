"""Starts a server on a core of its own, watches it from outside, and stops it."""

import fcntl
import json
import mmap
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.build import program as built
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench

# A server that takes longer than this to listen, or to end, is broken rather than slow.
_PATIENCE_SECONDS: Final = 60.0

# longer than any run: a limit server that a killed run has left behind ends by itself
_LIMIT_LIVES_SECONDS: Final = 900
_LOOK_SECONDS: Final = 0.005
# Nothing but what is measured: no waiting at the start, none at the end, and no broker that expires meanwhile.
_FLAGS: Final = (
    *("--listen-host", "127.0.0.1", "--listen-port", "0", "--log-format", "json", "--drain-seconds", "0"),
    # on, as it is by default, and on a free port
    *("--http-listen", "127.0.0.1:0"),
    *("--wait-for-service-seconds", "0", "--broker-expiry-seconds", "86400"),
)

# Variables that are settings of ours, of RocketMQ or of a JVM begin with these.
_SETTINGS: Final = ("NAMESRV_", "ROCKETMQ_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# All load comes from this machine.
WITHOUT_SHARES: Final = ("--share-per-ip-percent", "100")

# The cost of the heartbeat log is a subject of its own: a load of seconds requests everything for the first time, and
# sends as many heartbeats as thousands of brokers do, so that every response would be a line.
WITHOUT_LOG: Final = ("--heartbeat-log-dir", "")


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that listens on 127.0.0.1."""

    pid: int
    port: int
    # 0: the server serves no HTTP
    http_port: int = 0
    # from exec until its output, or its first response, showed it
    listening_after_seconds: float = 0.0
    # File with all that the server has printed.
    output: Path = Path(os.devnull)

    @property
    def address(self) -> str:
        """As a list of NameServers has it."""
        return f"127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        """The entries of a daemon's log; a line of a traceback is one that is critical and has no event."""
        lines = self.output.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) if line.startswith("{") else _not_logged(line) for line in lines]

    def status_bytes(self, name: str = "VmRSS") -> int:
        """One of the sizes in /proc/PID/status: by default what is resident now."""
        return status_bytes(Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"), name)

    def descriptors(self) -> int:
        """How many files are open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def cpu_seconds(self) -> float:
        """Processor time until now, of all threads, in user and kernel mode.

        /proc/PID/stat counts in hundredths of a second; the process's clock in nanoseconds. Its number is what
        `clock_getcpuclockid` returns on Linux: the bits of ~pid, then 2 for "what the scheduler accounts".
        """
        return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e9

    def loop_seconds(self) -> float:
        """Processor time of the main thread, which runs the event loop."""
        schedstat = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        return int(schedstat.read_text(encoding="ascii").split()[0]) / 1e9

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def terminated(self, patience_seconds: float) -> tuple[float, int | None]:
        """Send SIGTERM, and wait: seconds until the end, and the exit code; None when the process did not end."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        while (waited := time.monotonic() - began) < patience_seconds:
            # the process that started the server reaps it
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return waited, ended.si_status
            time.sleep(_LOOK_SECONDS)
        return waited, None


def _not_logged(line: str) -> dict[str, Any]:
    return {"level": "critical", "event": "", "line": line}


def status_bytes(status: str, name: str = "VmRSS") -> int:
    """A size in a /proc/PID/status.

    Raises:
        BenchError: the process has ended: its status has no sizes.
    """
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise BenchError(f"no {name} in /proc/PID/status: the server has ended")
    return int(found[1]) * 1024


def free_port() -> int:
    """A port on which no process listens now, for servers that cannot choose one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def environment() -> dict[str, str]:
    """Our environment without settings of a NameServer or a JVM, so that only the flags count."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}


def end_in_order() -> None:
    """Take SIGTERM as Ctrl-C is taken, so that every server that was started is stopped."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


# -- the daemon and the limit server ----------------------------------------------------------------------------------


@contextmanager
def daemon(
    bench: Bench,
    *flags: str,
    shares: Sequence[str] = WITHOUT_SHARES,
    environ: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    is_unread: bool = False,
) -> Iterator[Server]:
    """A NameServer, with a fresh data directory unless the flags name one, until the block ends.

    A prefix is a command that becomes the server.
    """
    with data_directory("namesrv") as directory:
        command = [*prefix, sys.executable, "-m", "namesrv", *_FLAGS, *shares, "--data-dir", str(directory), *flags]
        program = Program("namesrv", command, daemon_ports, directory, environ or {}, is_unread)
        with started(bench, program) as server:
            yield server


@contextmanager
def limit(bench: Bench, body_bytes: int) -> Iterator[Server]:
    """The limit server, whose responses have bodies of that size, until the block ends."""
    command = [str(built("limit")), str(body_bytes), str(_LIMIT_LIVES_SECONDS)]
    with (
        data_directory("limit") as directory,
        started(bench, Program("limit", command, printed_ports(r'{"port":(\d+)}'), directory)) as server,
    ):
        yield server


def daemon_ports(log: str) -> Sequence[int]:
    """The ports in the daemon's log, that of HTTP last; empty until it listens."""
    for line in log.splitlines():
        if '"event":"listening"' in line and line.endswith("}"):
            entry = json.loads(line)
            return [int(one[0].rpartition(":")[2]) for one in (entry["addresses"], entry.get("http")) if one]
    return ()


def printed_ports(pattern: str) -> Callable[[str], Sequence[int]]:
    """Reads the ports that a pattern finds in the output of a server."""
    return lambda output: [int(port) for port in re.findall(pattern, output)]


@contextmanager
def data_directory(name: str) -> Iterator[Path]:
    """An empty directory for a server, until the block ends."""
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
    # Directory in which the server runs, and which has its output.
    home: Path
    # Variables beyond those of `environment`.
    environ: Mapping[str, str] = field(default_factory=dict)
    # True: the output is a pipe of one page that is read until the server listens, and never again.
    is_unread: bool = False


@contextmanager
def started(bench: Bench, program: Program) -> Iterator[Server]:
    """The server of a program on its core, as soon as it serves, until the block ends. Raises BenchError."""
    path = program.home / "output"
    with path.open("w") as file, ExitStack() as stack:
        output = file.fileno()
        read: Callable[[], str] = partial(path.read_text, errors="replace")
        if program.is_unread:
            read, output = _unread_pipe(stack)
        began = time.monotonic()
        process = subprocess.Popen(
            [*_pinned(bench), *program.command],
            env={**environment(), **program.environ},
            cwd=program.home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        stack.callback(_end, process)
        while not (ports := _ports(program, printed := read())):
            waited = time.monotonic() - began
            if process.poll() is not None or waited > _PATIENCE_SECONDS:
                why = "does not serve" if process.poll() is None else "ended"
                last = " ".join(printed.split())[-300:] or "no output"
                raise BenchError(f"{program.name} {why} after {waited:.0f} s: {last}")
            time.sleep(_LOOK_SECONDS)
        http_port = ports[1] if len(ports) > 1 else 0
        yield Server(process.pid, ports[0], http_port, time.monotonic() - began, path)


def _ports(program: Program, output: str) -> Sequence[int]:
    try:
        return program.ports(output)
    except OSError:
        # it does not listen yet
        return ()


def _unread_pipe(stack: ExitStack) -> tuple[Callable[[], str], int]:
    """A function that reads a pipe of one page, and the end of the pipe that a server writes to."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    stack.callback(os.close, writing)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    read: list[bytes] = []

    def read_more() -> str:
        if select.select([reading], [], [], 0)[0]:
            read.append(os.read(reading, mmap.PAGESIZE))
        return b"".join(read).decode()

    return read_more, writing


def _pinned(bench: Bench) -> Sequence[str]:
    """The command in front of another one that puts it on the server's core from its first instruction on.

    A JVM counts the cores that it may use, as Go and Tokio do, and starts threads, before it can be moved.
    """
    if bench.cores.server is None:
        return ()
    taskset = shutil.which("taskset")
    if taskset is None:
        raise BenchError("no taskset on PATH (util-linux): the server has to be on a core of its own")
    return (taskset, "--cpu-list", str(bench.cores.server))


def _end(process: "subprocess.Popen[bytes]") -> None:
    # a stopped process does not notice SIGTERM
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
