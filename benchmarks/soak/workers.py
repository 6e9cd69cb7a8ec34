"""Processes of brokers or clients that take commands: a JSON object a line, each with a response of one line.

The commands are {"do": "churn", "seconds": N}, whose response counts the changes, and {"do": "settle", …}.
"""

import argparse
import asyncio
import json
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, Protocol, Self, TypeVar

from benchmarks.harness.build import ROOT
from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import environment
from namesrv_runtime import loops

T = TypeVar("T")
_LONGEST_LINE: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 50
_CHANGES_A_SECOND: Final = 20


class Workers(Protocol):
    """What such a process has."""

    async def start(self) -> None:
        """Start all of them, before the first command."""

    async def change(self) -> str:
        """Make a change; returns its name."""

    async def settle(self, command: Mapping[str, Any], /) -> Any:
        """Come to rest; the response."""

    async def stop(self) -> None:
        """Leave, all at once."""


def work(workers: Callable[[argparse.Namespace], Workers], **options: type) -> int:
    """Be such a process until standard input ends: its options, all of them required, and those that all have."""
    parser = argparse.ArgumentParser()
    for name, kind in {"port": int, "count": int, "seed": int, **options}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, required=True)
    parsed = parser.parse_args()
    loops.run(lambda: _obey(workers(parsed)))
    return 0


async def _obey(workers: Workers) -> None:
    await workers.start()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print('"ready"', flush=True)
    while line := await reader.readline():
        command = json.loads(line)
        churns = command["do"] == "churn"
        response = await (_churn(workers, command["seconds"]) if churns else workers.settle(command))
        print(json.dumps(response), flush=True)
    await workers.stop()


async def _churn(workers: Workers, seconds: float) -> dict[str, int]:
    """Change something, over and over, for so long."""
    done = Counter[str]()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        done[await workers.change()] += 1
        await asyncio.sleep(1 / _CHANGES_A_SECOND)
    return dict(done)


async def some_at_a_time(begin: Callable[[int], Awaitable[T]], numbers: Iterable[int]) -> list[T]:
    """Begin with each of these numbers, but not with all at once."""
    left, begun = iter(numbers), list[T]()
    while some := list(islice(left, _AT_ONCE)):
        begun += await asyncio.gather(*map(begin, some))
    return begun


class Crew:
    """One such process, from outside, until the block ends."""

    def __init__(self, module: str, *flags: str, patience_seconds: float) -> None:
        self._command = [sys.executable, "-m", module, *flags]
        self._patience_seconds = patience_seconds
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )

    def start_again(self) -> None:
        """After it was killed."""
        self._process = self._start()

    def command(self, do: str, **fields: Any) -> None:
        """Send a command; `response` waits for its end."""
        assert self._process.stdin is not None  # noqa: S101  # a pipe, by _start
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise BenchError(f"{self._command[2]}: {error}") from error

    def response(self, within_seconds: float = 0.0) -> Any:
        """Its next line.

        Raises:
            BenchError: the process has ended, or did not print a line in time.
        """
        assert self._process.stdout is not None  # noqa: S101  # a pipe, by _start
        patience = within_seconds + self._patience_seconds
        if not select.select([self._process.stdout], [], [], patience)[0]:
            raise BenchError(f"{self._command[2]} has no response within {patience:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._command[2]} has ended")
        return json.loads(line)

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self._process.send_signal(number)

    def leave(self) -> None:
        """Close its standard input, and wait for its end."""
        assert self._process.stdin is not None  # noqa: S101  # a pipe, by _start
        self._process.stdin.close()
        try:
            self._process.wait(self._patience_seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{self._command[2]} does not end") from error

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
