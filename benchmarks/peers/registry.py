"""The work of a registry in the comparison: serve routes, accept heartbeats, notify watchers of a change."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.loads import Script
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, started
from benchmarks.harness.wire import PULLED_BODY_BYTES

# route in registries that only store bytes, as large as a route of ours
ROUTE: Final = b"r" * PULLED_BODY_BYTES


@dataclass(frozen=True, slots=True)
class Registry:
    """A running server, and the scripts of its protocol."""

    server: Server
    # Stores 1,000 routes of 1.9 kB and prepares 1,000 senders of heartbeats; may be called again. Raises BenchError.
    seed: Callable[[], object]
    pulls: Script
    heartbeats: Script
    # Returns watches and a change that notifies them; None for a registry whose clients poll.
    watch: Callable[[], Script] | None = None


def responding(  # noqa: PLR0913 - peers differ in these
    bench: Bench,
    name: str,
    *,
    command: Sequence[str],
    port: int,
    is_responding: Callable[[int], bool],
    home: Path,
) -> AbstractContextManager[Server]:
    """A server, from when it responds on its port until the block ends."""
    environ = {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    return started(bench, Program(name, command, lambda _: [port] if is_responding(port) else [], home, environ))
