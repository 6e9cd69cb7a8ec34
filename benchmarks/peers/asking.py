"""Runs registry.c against a registry that is not RocketMQ's."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks import loads
from benchmarks.build import program
from benchmarks.loads import Load
from benchmarks.rounds import Bench
from benchmarks.servers import Server

WATCHERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Script:
    """What is sent on each connection, ready-made, and what counts as an answer."""

    framing: Literal["length", "http2"]
    questions: Sequence[bytes]
    # sent first, and how many frames come before a connection counts
    greeting: bytes = b""
    acks: int = 0
    # an answer of fewer bytes is a failure
    least_bytes: int = 0
    # what watchers wait for
    change: bytes = b""
    # sent last
    farewell: bytes = b""

    def items(self) -> bytes:
        """As registry.c reads them."""
        parts = (self.greeting, self.change, self.farewell, *self.questions)
        return b"".join(len(part).to_bytes(4) + part for part in parts)

    def flags(self) -> list[str]:
        """As registry.c reads them."""
        return ["--framing", self.framing, "--acks", str(self.acks), "--least", str(self.least_bytes)]


class Registry(ABC):
    """One of them: how it is seeded."""

    def __init__(self, bench: Bench, server: Server) -> None:
        self.server = server
        self._bench = bench
        self._is_seeded = False

    def seed(self) -> None:
        """Let it have all that is asked for, once.

        Raises:
            BenchError: it did not take that.
        """
        if not self._is_seeded:
            self._fill()
            self._is_seeded = True

    @abstractmethod
    def _fill(self) -> None: ...


def asked(bench: Bench, server: Server, script: Script, seconds: int | None = None) -> Load:
    """What 200 connections find that ask one question at a time.

    Raises:
        BenchError: not all answers were good ones.
    """
    lasts = bench.effort.seconds if seconds is None else seconds
    return _run(server, [*script.flags(), "--seconds", str(lasts)], script, lasts)


def told(server: Server, script: Script) -> Load:
    """How soon after a change each of the watchers knows of it.

    Raises:
        BenchError: not all of them were told.
    """
    return _run(server, [*script.flags(), "--watch", "--connections", str(WATCHERS)], script, 2)


def _run(server: Server, flags: Sequence[str], script: Script, seconds: int) -> Load:
    command = [str(program("peers/registry")), "--port", str(server.port), *flags]
    return loads.run_program(server, command, seconds, script.items())
