"""Starts a server on a core of its own, watches it from outside, and stops it."""

import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from benchmarks.figures import BenchError
from benchmarks.rounds import Bench

ROOT: Final = Path(__file__).resolve().parent.parent
# a daemon that takes longer than this to listen, or to leave, is broken rather than slow
_PATIENCE_SECONDS: Final = 20.0
# longer than any run; what is left behind by a run that was killed ends by itself
_LIMIT_LIVES_SECONDS: Final = 900
# Nothing but what is measured: no waiting at the start, none at the end, and no broker that expires meanwhile.
DAEMON_FLAGS: Final = (
    *("--listen-host", "127.0.0.1", "--listen-port", "0", "--log-format", "json", "--drain-seconds", "0"),
    # on, as it is by default, and on a free port
    *("--http-listen", "127.0.0.1:0"),
    *("--wait-for-service-seconds", "0", "--broker-expiry-seconds", "86400"),
)

# All load comes from this machine, and all brokers of a large table over one connection.
WITHOUT_SHARES: Final = (
    *("--share-per-ip-percent", "100"),
    *("--max-brokers-per-connection", "1000000", "--max-topics-per-connection", "100000000"),
)

# What the heartbeat log costs is a question of its own: a load of seconds asks everything for the first time, and beats
# as often as thousands of brokers do, so that every answer would be a line.
WITHOUT_LOG: Final = ("--heartbeat-log-dir", "")


@dataclass(frozen=True, slots=True)
class Server:
    """A server process that listens on 127.0.0.1."""

    pid: int
    port: int
    # from exec until it said so
    listening_after_seconds: float

    def resident_bytes(self) -> int:
        """What it has in memory now."""
        return resident_bytes(Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"))

    def cpu_seconds(self) -> float:
        """What it has computed until now, all threads, in user and kernel mode.

        /proc/PID/stat counts in hundredths of a second; the process's clock in nanoseconds.
        """
        return time.clock_gettime_ns(_cpu_clock(self.pid)) / 1e9


def _cpu_clock(pid: int) -> int:
    """What `clock_getcpuclockid` returns on Linux: the bits of ~pid, then 2 for "what the scheduler accounts"."""
    return (~pid << 3) | 2


def resident_bytes(status: str) -> int:
    """The resident set in a /proc/PID/status.

    Raises:
        BenchError: there is none in it, as of a process that has ended.
    """
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise BenchError("no VmRSS in /proc/PID/status: the server has ended")
    return int(found[1]) * 1024


@contextmanager
def daemon(
    bench: Bench,
    *flags: str,
    shares: Sequence[str] = WITHOUT_SHARES,
    environ: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Iterator[Server]:
    """A NameServer with a fresh data directory, until the block ends; a prefix is a command that becomes it."""
    with tempfile.TemporaryDirectory(prefix="namesrv-bench-") as data_dir:
        command = [*prefix, sys.executable, "-m", "namesrv", *DAEMON_FLAGS, *shares, "--data-dir", data_dir, *flags]
        started = time.monotonic()
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**environment(), **(environ or {})}, cwd=data_dir
        )
        with watched(bench, "namesrv", process, daemon_port, started) as server:
            yield server


@contextmanager
def limit(bench: Bench, body_bytes: int) -> Iterator[Server]:
    """The limit server, whose answers have bodies of that size, until the block ends."""
    command = [str(bench.limit_program), "--body", str(body_bytes), "--seconds", str(_LIMIT_LIVES_SECONDS)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with watched(bench, "limit", process, limit_port, started) as server:
        yield server


@contextmanager
def watched(
    bench: Bench,
    name: str,
    process: "subprocess.Popen[str]",
    read_port: Callable[[str], int | None],
    started: float,
) -> Iterator[Server]:
    """The server of a process, as soon as its piped output says on which port it listens, until the block ends."""
    with _Output(process.stdout or process.stderr, read_port) as output, owned(bench, process):
        yield output.server(name, process.pid, started)


def daemon_port(line: str) -> int | None:
    """The port in the daemon's log line that says that it listens; None for every other line."""
    if '"listening"' not in line:
        return None
    said = json.loads(line)
    return int(said["addresses"][0].rpartition(":")[2]) if said.get("event") == "listening" else None


def limit_port(line: str) -> int | None:
    """The port in the one line that the limit server prints."""
    return int(json.loads(line)["port"])


def end_in_order() -> None:
    """Take SIGTERM as Ctrl-C is taken: whoever started a server stops it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def environment() -> dict[str, str]:
    """Ours without settings of a NameServer: what is measured is what the flags say."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}


@contextmanager
def owned(bench: Bench, process: "subprocess.Popen[str]") -> Iterator[None]:
    """Put a server on its core, and end it when the block does."""
    try:
        if bench.cores.server is not None:
            # right after exec, when it has one thread; later ones inherit it
            os.sched_setaffinity(process.pid, {bench.cores.server})
        yield
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Output:
    """What a server prints, read by a thread to its end, so that the server never waits for us."""

    def __init__(self, stream: IO[str] | None, read_port: Callable[[str], int | None]) -> None:
        if stream is None:
            raise BenchError("the server's output is not a pipe")
        self._stream = stream
        self._read_port = read_port
        # where it listens, once it said so, and when that was
        self._port: int | None = None
        self._port_at = 0.0
        # set when there is a port, or no more lines
        self._known = threading.Event()
        # for the message when it never comes
        self._last: collections.deque[str] = collections.deque(maxlen=5)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # the server has ended by now, and its output with it
        self._thread.join()

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                self._last.append(line.rstrip())
                if self._port is None and (port := self._read_port(line)) is not None:
                    self._port_at = time.monotonic()
                    self._port = port
                    self._known.set()
        self._known.set()

    def server(self, name: str, pid: int, started: float) -> Server:
        """The server, as soon as it listens."""
        in_time = self._known.wait(_PATIENCE_SECONDS)
        if self._port is None:
            why = "ended" if in_time else f"does not listen within {_PATIENCE_SECONDS:g} s"
            raise BenchError(f"{name} {why}: {' / '.join(self._last) or 'it said nothing'}")
        return Server(pid, self._port, self._port_at - started)
