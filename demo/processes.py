"""Starts and follows the demo's processes, and ends them whatever happens."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Final, Self

# A log line of a NameServer is a few hundred bytes; a traceback in one may be more.
_LONGEST_LINE: Final = 1 << 20
# what a process gets to end by itself
_END_SECONDS: Final = 5.0


class Child:
    """A Python process whose lines are read as they come; ended at the end of the block."""

    def __init__(self, name: str, *arguments: str, heard: Callable[[str], None]) -> None:
        self.name = name
        self._arguments = arguments
        self._heard = heard
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, or start it again after it has ended."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LONGEST_LINE,
            # what is set for servers of yours says nothing about these
            env={name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")},
            # Ctrl-C is for the demo, which ends them in order
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read(process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101  # asked for above
        while line := await process.stdout.readline():
            self._heard(line.decode(errors="replace").rstrip("\n"))

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        """Return when it has ended, and all it said was heard."""
        if self._process is not None and self._reader is not None:
            await self._process.wait()
            await self._reader

    async def stop(self) -> None:
        """Tell it to end; make it, if it does not."""
        # one that is frozen would not hear
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.ended()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, if it still runs."""
        try:
            await self.stop()
        finally:
            # cancelled in the middle: without another word
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
