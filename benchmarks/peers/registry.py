"""The work of a registry in the comparison: serve routes, accept heartbeats, notify watchers of a change."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.loads import Script
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, started_at_home
from benchmarks.harness.wire import PULLED_BODY_BYTES
from tests.support.ports import free_port

# route in registries that only store bytes, as large as a route of ours
ROUTE: Final = b"r" * PULLED_BODY_BYTES


def _none() -> Script:
    raise BenchError("its clients poll")


@dataclass(frozen=True, slots=True)
class Registry:
    """A running server, and the scripts of its protocol."""

    server: Server
    # Stores 1,000 routes of 1.9 kB and prepares 1,000 senders of heartbeats; may be called again. Raises BenchError.
    seed: Callable[[], object]
    pulls: Script
    heartbeats: Script
    # Returns watches and a change that notifies them. Raises BenchError if clients poll.
    watch: Callable[[], Script] = _none


def responding(
    bench: Bench,
    name: str,
    command: Callable[[Path, int], Sequence[str]],
    is_responding: Callable[[int], bool],
    port: int = 0,
) -> AbstractContextManager[Server]:
    """A server, from when it responds until the block ends; its command is given an empty home and a port.

    The port is a free one if it is 0.
    """
    port = port or free_port()

    def program(home: Path) -> Program:
        environ = {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
        return Program(name, command(home, port), lambda _: [port] if is_responding(port) else [], home, environ)

    return started_at_home(bench, program)
