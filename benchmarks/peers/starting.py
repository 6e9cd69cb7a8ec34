"""Starts a peer's server on the server's core and watches it from outside."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError
from benchmarks.rounds import Bench
from benchmarks.servers import Server, owned

# a JVM on a core that others want, too
_PATIENCE_SECONDS: Final = 60.0
_EVERY_SECONDS: Final = 0.005
_LAST_CHARACTERS: Final = 300


def pinned(bench: Bench) -> Sequence[str]:
    """What goes before a command so that it is on its core from the first instruction on.

    A JVM counts the cores that it may use, as Go and Tokio do, and starts threads, before anybody can move it.

    Raises:
        BenchError: there is a core for it, and no taskset that puts it there.
    """
    if bench.cores.server is None:
        return ()
    taskset = shutil.which("taskset")
    if taskset is None:
        raise BenchError("no taskset on PATH (util-linux): a peer has to be on the core that ours is on")
    return (taskset, "--cpu-list", str(bench.cores.server))


def java() -> str:
    """The program on PATH.

    Raises:
        BenchError: there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise BenchError("no java on PATH")
    return found


def environment(home: Path) -> dict[str, str]:
    """Ours without settings of RocketMQ or of a JVM: what is measured is what the flags say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ_", "NAMESRV_"))}
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        kept.pop(name, None)
    return {**kept, "ROCKETMQ_HOME": str(home), "HOME": str(home)}


def free_port() -> int:
    """A port that nobody listens on now, for those who cannot be told to choose one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Program:
    """A server to be started, which cannot say when it listens."""

    name: str
    command: Sequence[str]
    port: int
    # True, False or OSError: whether it answers there
    is_answering: Callable[[int], bool]
    # where it keeps its data
    home: Path


@contextmanager
def answering(bench: Bench, program: Program) -> Iterator[Server]:
    """The server of a program, as soon as it answers on its port, until the block ends.

    Raises:
        BenchError: it ended, or does not answer in time.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            [*pinned(bench), *program.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            cwd=program.home,
            env=environment(program.home),
        )
        with owned(bench, process):
            while not _answers(program):
                waited = time.monotonic() - started
                if process.poll() is not None or waited > _PATIENCE_SECONDS:
                    output.seek(0)
                    said = " ".join(output.read().split())
                    why = "does not answer" if process.poll() is None else "ended"
                    raise BenchError(
                        f"{program.name} {why} after {waited:.0f} s: {said[-_LAST_CHARACTERS:] or 'no output'}"
                    )
                time.sleep(_EVERY_SECONDS)
            yield Server(process.pid, program.port, time.monotonic() - started)


def _answers(program: Program) -> bool:
    try:
        return program.is_answering(program.port)
    except OSError:
        # nobody listens yet
        return False


@contextmanager
def data_directory(name: str) -> Iterator[Path]:
    """An empty one for a server, until the block ends."""
    with tempfile.TemporaryDirectory(prefix=f"namesrv-bench-{name}-") as path:
        yield Path(path)
