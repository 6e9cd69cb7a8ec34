"""A process of brokers or clients that takes commands over a pipe: ("churn", seconds) or ("settle", value)."""

import asyncio
import logging
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol, Self, TypeVar

from benchmarks.harness.figures import BenchError
from namesrv_runtime import loops

T = TypeVar("T")
# A state that is wrong for so long counts as wrong; a busy machine is only late.
PATIENCE_SECONDS: Final = 600.0
_AT_ONCE: Final = 50
_CHANGES_A_SECOND: Final = 20


class Workers(Protocol):
    """The brokers or clients of a process."""

    async def start(self) -> None:
        """Start all workers, before the first command."""

    async def change(self) -> str:
        """Make a random change and return its name."""

    async def settle(self, value: Any, /) -> Any:
        """Come to rest and return the response to the command."""

    async def stop(self) -> None:
        """Stop all workers at the same time."""


class Crew:
    """The parent's end of a process of workers, which is killed when the block ends."""

    def __init__(self, workers: Callable[[], Workers]) -> None:
        self._workers = workers
        self.start()

    def start(self) -> None:
        """Start the process, also again after its end; its first response says that all workers have started."""
        self._pipe, theirs = multiprocessing.Pipe()
        # A forked process would inherit our connections, and keep them open when we close them.
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._workers, theirs))
        self._process.start()
        theirs.close()

    def command(self, name: str, value: Any = None) -> None:
        """Send a command, whose response `response` returns."""
        self._pipe.send((name, value))

    def response(self, within_seconds: float = 0.0) -> Any:
        """The next response. Raises BenchError."""
        try:
            if self._pipe.poll(within_seconds + PATIENCE_SECONDS):
                return self._pipe.recv()
        except EOFError:
            raise BenchError("a process of brokers or clients has ended") from None
        raise BenchError(f"a process of brokers or clients does not respond within {PATIENCE_SECONDS:g} s")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self._process.pid or 0, number)

    def leave(self) -> None:
        """Stop all workers, and wait for the exit of the process. Raises BenchError."""
        self._pipe.send(None)
        self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            raise BenchError(f"a process of brokers or clients does not exit within {PATIENCE_SECONDS:g} s")

    def kill(self) -> None:
        """Kill the process, as a power failure would."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


async def some_at_a_time(begin: Callable[[int], Awaitable[T]], numbers: Iterable[int]) -> list[T]:
    """Call a function for each number, at most _AT_ONCE at a time, and return all results."""
    left, begun = iter(numbers), list[T]()
    while some := list(islice(left, _AT_ONCE)):
        begun += await asyncio.gather(*map(begin, some))
    return begun


# -- the process ------------------------------------------------------------------------------------------------------


def _work(workers: Callable[[], Workers], pipe: Connection) -> None:
    # Without warnings of late heartbeats and of a stopped server, which the faults cause.
    logging.disable(logging.WARNING)
    loops.run(lambda: _obey(workers(), pipe))


async def _obey(workers: Workers, pipe: Connection) -> None:
    await workers.start()
    pipe.send("ready")
    while command := await asyncio.to_thread(_received, pipe):
        name, value = command
        pipe.send(await (_churn(workers, value) if name == "churn" else workers.settle(value)))
    await workers.stop()


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


async def _churn(workers: Workers, seconds: float) -> Counter[str]:
    """Make changes for some seconds, and return their numbers by name."""
    done = Counter[str]()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        done[await workers.change()] += 1
        await asyncio.sleep(1 / _CHANGES_A_SECOND)
    return done
