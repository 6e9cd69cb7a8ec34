"""Commands between the soak and its processes: a JSON object a line, answered by one line."""

import asyncio
import json
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

from benchmarks.figures import BenchError
from benchmarks.servers import ROOT, environment

Verb = Callable[[Mapping[str, Any]], Awaitable[Any]]
_LONGEST_LINE: Final = 64 * 1024 * 1024


async def obey(verbs: Mapping[str, Verb]) -> None:
    """Say that all is ready, and do what is asked until standard input ends."""
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print('"ready"', flush=True)
    while line := await reader.readline():
        asked = json.loads(line)
        print(json.dumps(await verbs[asked["do"]](asked)), flush=True)


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

    def ask(self, do: str, **fields: Any) -> None:
        """Have it do something; `answer` waits for the end of that."""
        assert self._process.stdin is not None  # noqa: S101  # asked for above
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise BenchError(f"{self._command[2]}: {error}") from error

    def answer(self, within_seconds: float = 0.0) -> Any:
        """What it says next.

        Raises:
            BenchError: it has ended, or says nothing.
        """
        assert self._process.stdout is not None  # noqa: S101  # asked for above
        patience = within_seconds + self._patience_seconds
        if not select.select([self._process.stdout], [], [], patience)[0]:
            raise BenchError(f"{self._command[2]} says nothing for {patience:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{self._command[2]} has ended")
        return json.loads(line)

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        self._process.send_signal(number)

    def leave(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin is not None  # noqa: S101  # asked for above
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
