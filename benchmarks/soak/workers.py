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
# What is wrong for so long stays wrong; a busy machine is only late.
PATIENCE_SECONDS: Final = 600.0
_AT_ONCE: Final = 50
_CHANGES_A_SECOND: Final = 20


class Workers(Protocol):
    """The brokers or clients of such a process."""

    async def start(self) -> None:
        """Start all of them, before the first command."""

    async def change(self) -> str:
        """Make a change; returns its name."""

    async def settle(self, value: Any, /) -> Any:
        """Come to rest; returns the response to the command."""

    async def stop(self) -> None:
        """Leave, all at once."""


class Crew:
    """One such process, from outside, until the block ends."""

    def __init__(self, workers: Callable[[], Workers]) -> None:
        self._workers = workers
        self.start()

    def start(self) -> None:
        """Start the process, also again after its end; its first response says that all workers have started."""
        self._pipe, theirs = multiprocessing.Pipe()
        # Not forked: a copy of a connection would stay open in the process when it is closed here.
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._workers, theirs))
        self._process.start()
        theirs.close()

    def command(self, name: str, value: Any = None) -> None:
        """Send a command; `response` waits for its end."""
        self._pipe.send((name, value))

    def response(self, within_seconds: float = 0.0) -> Any:
        """The next response. Raises BenchError."""
        try:
            if self._pipe.poll(within_seconds + PATIENCE_SECONDS):
                return self._pipe.recv()
        except EOFError:
            raise BenchError("a process of brokers or clients has ended") from None
        raise BenchError(f"brokers or clients have no response within {PATIENCE_SECONDS:g} s")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self._process.pid or 0, number)

    def leave(self) -> None:
        """Let all workers leave, and wait for the end of the process. Raises BenchError."""
        self._pipe.send(None)
        self._process.join(PATIENCE_SECONDS)
        if self._process.is_alive():
            raise BenchError("a process of brokers or clients does not end")

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


async def some_at_a_time(begin: Callable[[int], Awaitable[T]], numbers: Iterable[int]) -> list[T]:
    """Begin with each of these numbers, but not with all at once."""
    left, begun = iter(numbers), list[T]()
    while some := list(islice(left, _AT_ONCE)):
        begun += await asyncio.gather(*map(begin, some))
    return begun


# -- the process ------------------------------------------------------------------------------------------------------


def _work(workers: Callable[[], Workers], pipe: Connection) -> None:
    # A frozen broker logs that it is late, and clients that the server is stopped.
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
    """Change something, over and over, for so long; the number of changes by name."""
    done = Counter[str]()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        done[await workers.change()] += 1
        await asyncio.sleep(1 / _CHANGES_A_SECOND)
    return done
