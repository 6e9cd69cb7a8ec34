"""Starts a server on a core of its own, watches it from outside, and stops it."""

import collections
import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.harness.build import ROOT, program
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

# All load comes from this machine.
WITHOUT_SHARES: Final = ("--share-per-ip-percent", "100")

# The cost of the heartbeat log is a subject of its own: a load of seconds requests everything for the first time, and
# sends as many heartbeats as thousands of brokers do, so that every response would be a line.
WITHOUT_LOG: Final = ("--heartbeat-log-dir", "")

# Called with each line of a daemon's log, in a thread of its own.
OnLine = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that listens on 127.0.0.1."""

    pid: int
    port: int
    # 0: the server serves no HTTP
    http_port: int = 0
    # from exec until its log, or its first response, showed it
    listening_after_seconds: float = 0.0

    @property
    def address(self) -> str:
        """As a list of NameServers has it."""
        return f"127.0.0.1:{self.port}"

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
    """Our environment without settings of a NameServer, so that only the flags count."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}


def end_in_order() -> None:
    """Take SIGTERM as Ctrl-C is taken, so that every server that was started is stopped."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


# -- the daemon and the limit server ----------------------------------------------------------------------------------


@contextmanager
def daemon(  # noqa: PLR0913 - each benchmark needs few of them
    bench: Bench,
    *flags: str,
    shares: Sequence[str] = WITHOUT_SHARES,
    environ: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    is_unread: bool = False,
    on_line: OnLine = lambda _: None,
) -> Iterator[Server]:
    """A NameServer, with a fresh data directory unless the flags name one, until the block ends.

    A prefix is a command that becomes the server. The log of an unread one is a pipe of one page that is read until the
    server listens, and never again.
    """
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-") as data_dir:
        command = [*prefix, sys.executable, "-m", "namesrv", *_FLAGS, *shares, "--data-dir", data_dir, *flags]
        started = time.monotonic()
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**environment(), **(environ or {})}, cwd=data_dir
        )
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        if is_unread:
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        with watched(bench, "namesrv", process, daemon_ports, started, on_line=on_line, is_unread=is_unread) as server:
            yield server


@contextmanager
def limit(bench: Bench, body_bytes: int) -> Iterator[Server]:
    """The limit server, whose responses have bodies of that size, until the block ends."""
    command = [str(program("limit")), "--body", str(body_bytes), "--seconds", str(_LIMIT_LIVES_SECONDS)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with watched(bench, "limit", process, lambda line: (json.loads(line)["port"],), started) as server:
        yield server


def daemon_ports(line: str) -> Sequence[int]:
    """The ports in the line of the daemon's log that it listens, that of HTTP last; empty for every other line."""
    if '"listening"' not in line:
        return ()
    entry = json.loads(line)
    if entry.get("event") != "listening":
        return ()
    return [int(one[0].rpartition(":")[2]) for one in (entry["addresses"], entry.get("http")) if one]


@contextmanager
def watched(  # noqa: PLR0913 - of the two kinds of servers
    bench: Bench,
    name: str,
    process: "subprocess.Popen[str]",
    ports_in: Callable[[str], Sequence[int]],
    started: float,
    *,
    on_line: OnLine = lambda _: None,
    is_unread: bool = False,
) -> Iterator[Server]:
    """The server of a process, as soon as its piped output shows its ports, until the block ends."""
    with _Output(process, ports_in, on_line, is_unread=is_unread) as output, owned(bench, process):
        yield output.server(name, started)


@contextmanager
def owned(bench: Bench, process: "subprocess.Popen[str]") -> Iterator[None]:
    """Put a server on its core, and end it when the block does."""
    try:
        if bench.cores.server is not None:
            # right after exec, when it has one thread; later ones inherit the core
            os.sched_setaffinity(process.pid, {bench.cores.server})
        yield
    finally:
        # a stopped process does not notice SIGTERM
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Output:
    """The output of a server, read by a thread to its end, so that the server never waits for us."""

    def __init__(
        self,
        process: "subprocess.Popen[str]",
        ports_in: Callable[[str], Sequence[int]],
        on_line: OnLine,
        *,
        is_unread: bool,
    ) -> None:
        self._process = process
        self._ports_in = ports_in
        self._on_line = on_line
        self._is_unread = is_unread
        # where it listens, once a line has shown that, and when
        self._ports: Sequence[int] = ()
        self._ports_at = 0.0
        # set when there are ports, or no more lines
        self._known = threading.Event()
        # for the message when the ports never come
        self._last: collections.deque[str] = collections.deque(maxlen=5)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # the server has ended by now, and its output with it
        self._thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        for line in self._process.stdout or self._process.stderr or ():
            self._last.append(line.rstrip())
            self._on_line(line)
            if not self._ports and (ports := self._ports_in(line)):
                self._ports_at = time.monotonic()
                self._ports = ports
                self._known.set()
                if self._is_unread:
                    return
        self._known.set()

    def server(self, name: str, started: float) -> Server:
        """The server, as soon as it listens. Raises BenchError."""
        in_time = self._known.wait(_PATIENCE_SECONDS)
        if not self._ports:
            why = "ended" if in_time else f"does not listen within {_PATIENCE_SECONDS:g} s"
            raise BenchError(f"{name} {why}: {' / '.join(self._last) or 'no output'}")
        http_port = self._ports[1] if len(self._ports) > 1 else 0
        return Server(self._process.pid, self._ports[0], http_port, self._ports_at - started)


# -- other registries -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A server to be started whose output does not show when it listens."""

    name: str
    command: Sequence[str]
    port: int
    # True, False or OSError: whether it responds there
    is_responding: Callable[[int], bool]
    # where it keeps its data
    home: Path


@contextmanager
def responding(bench: Bench, program: Program) -> Iterator[Server]:
    """The server of a program, as soon as it responds on its port, until the block ends.

    Raises:
        BenchError: it ended, or does not respond in time.
    """
    with ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        started = time.monotonic()
        process = subprocess.Popen(
            [*_pinned(bench), *program.command],
            text=True,
            cwd=program.home,
            env=peers_environment(program.home),
            **streams,
        )
        stack.enter_context(owned(bench, process))
        while not _responds(program):
            waited = time.monotonic() - started
            if process.poll() is not None or waited > _PATIENCE_SECONDS:
                output.seek(0)
                why = "does not respond" if process.poll() is None else "ended"
                printed = " ".join(output.read().split())[-300:] or "no output"
                raise BenchError(f"{program.name} {why} after {waited:.0f} s: {printed}")
            time.sleep(_LOOK_SECONDS)
        yield Server(process.pid, program.port, listening_after_seconds=time.monotonic() - started)


def _responds(program: Program) -> bool:
    try:
        return program.is_responding(program.port)
    except OSError:
        # it does not listen yet
        return False


def _pinned(bench: Bench) -> Sequence[str]:
    """The command in front of another one that puts it on its core from the first instruction on.

    A JVM counts the cores that it may use, as Go and Tokio do, and starts threads, before it can be moved.
    """
    if bench.cores.server is None:
        return ()
    taskset = shutil.which("taskset")
    if taskset is None:
        raise BenchError("no taskset on PATH (util-linux): a peer has to be on the core that ours is on")
    return (taskset, "--cpu-list", str(bench.cores.server))


def peers_environment(home: Path) -> dict[str, str]:
    """Our environment without settings of RocketMQ or a JVM, so that only the flags count."""
    kept = {name: value for name, value in environment().items() if not name.startswith("ROCKETMQ_")}
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        kept.pop(name, None)
    return {**kept, "ROCKETMQ_HOME": str(home), "HOME": str(home)}


# -- helpers in processes of their own --------------------------------------------------------------------------------


def module_output(module: str, *arguments: str, patience_seconds: float, core: int | None = None) -> Any:
    """What one of our modules prints as JSON when it has run. Raises BenchError."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    return json.loads(output_of(process, module, patience_seconds, set() if core is None else {core}))


def output_of(process: subprocess.Popen[str], name: str, patience_seconds: float, cores: Collection[int] = ()) -> str:
    """The standard output of a process, once it has ended; it may be put on other cores. Raises BenchError."""
    with process:
        try:
            if cores:
                os.sched_setaffinity(process.pid, cores)
            printed, complaint = process.communicate(timeout=patience_seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{name}: not done after {patience_seconds:g} s") from error
        finally:
            process.kill()
    if process.returncode:
        # A process whose standard error is its standard output complains there.
        raise BenchError(f"{name}: {(complaint or printed).strip()[-1000:]}")
    return printed
