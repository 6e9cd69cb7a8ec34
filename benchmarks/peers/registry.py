"""The work of a registry in the comparison: serve routes, accept heartbeats, notify watchers of a change."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.harness.loads import Load, Script, run, watched
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import Program, Server, started
from benchmarks.harness.wire import PULLED_BODY_BYTES

# route in registries that only store bytes, as large as a route of ours
ROUTE: Final = b"r" * PULLED_BODY_BYTES


class Registry(ABC):
    """A running server, and the scripts of its protocol."""

    def __init__(self, bench: Bench, server: Server) -> None:
        self.server = server
        self._bench = bench
        self._is_seeded = False

    def seed(self) -> None:
        """Store 1,000 routes of 1.9 kB and prepare 1,000 senders of heartbeats, once. Raises BenchError."""
        if not self._is_seeded:
            self._fill()
            self._is_seeded = True

    def pull(self, seconds: int | None = None) -> Load:
        """Pull routes on 200 connections."""
        return run(self._bench, self.server, self._pulls(), seconds=seconds)

    def heartbeat(self, seconds: int | None = None) -> Load:
        """Send heartbeats on 200 connections."""
        return run(self._bench, self.server, self._heartbeats(), seconds=seconds)

    def notify(self, watchers: int = 1_000) -> Load | None:
        """Notify watchers of a change; None for a registry whose clients poll."""
        script = self._watch()
        return None if script is None else watched(self._bench, self.server, script, watchers)

    def notify_beside_pulls(self, watchers: int) -> Load | None:
        """Notify watchers of a change while routes are pulled; None if this registry is not measured so."""
        script, pull = self._watch(), self._pull()
        return (
            None
            if script is None or not pull
            else watched(self._bench, self.server, replace(script, beside=pull), watchers)
        )

    def _pull(self) -> bytes:
        """A request for a connection of its own beside watches; empty for other registries than ours."""
        return b""

    @abstractmethod
    def _fill(self) -> None: ...

    @abstractmethod
    def _pulls(self) -> Script: ...

    @abstractmethod
    def _heartbeats(self) -> Script: ...

    @abstractmethod
    def _watch(self) -> Script | None: ...


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
