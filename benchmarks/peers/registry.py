"""What a registry does in the comparison: serve routes, take heartbeats, notify watchers of a change."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from benchmarks.harness.loads import Load, Script, run, watched
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, started
from benchmarks.harness.wire import PULLED_BODY_BYTES

# the value of a route in registries that do not know RocketMQ's, as large as ours
ROUTE: Final = b"r" * PULLED_BODY_BYTES


class Registry(ABC):
    """A server that runs, and the scripts of its protocol."""

    def __init__(self, bench: Bench, server: Server) -> None:
        self.server = server
        self._bench = bench
        self._is_seeded = False

    def seed(self) -> None:
        """Give it 1,000 routes of 1.9 kB and 1,000 senders of heartbeats, unless it has them. Raises BenchError."""
        if not self._is_seeded:
            self._fill()
            self._is_seeded = True

    def pull(self, seconds: int | None = None) -> Load:
        """Routes, requested on 200 connections."""
        return run(self._bench, self.server, self._pulls(), seconds=seconds)

    def heartbeat(self, seconds: int | None = None) -> Load:
        """Heartbeats, on 200 connections."""
        return run(self._bench, self.server, self._heartbeats(), seconds=seconds)

    def notify(self) -> Load | None:
        """How soon 1,000 watchers know of a change; None without watches, where clients poll."""
        script = self._watch()
        return None if script is None else watched(self._bench, self.server, script)

    @abstractmethod
    def _fill(self) -> None: ...

    @abstractmethod
    def _pulls(self) -> Script: ...

    @abstractmethod
    def _heartbeats(self) -> Script: ...

    @abstractmethod
    def _watch(self) -> Script | None: ...


def responding(  # noqa: PLR0913 - what differs between peers
    bench: Bench,
    name: str,
    *,
    command: Sequence[str],
    port: int,
    is_responding: Callable[[int], bool],
    home: Path,
) -> AbstractContextManager[Server]:
    """The server of a command, as soon as it responds on its port, until the block ends."""
    environ = {"ROCKETMQ_HOME": str(home), "HOME": str(home)}
    return started(bench, Program(name, command, lambda _: [port] if is_responding(port) else [], home, environ))
