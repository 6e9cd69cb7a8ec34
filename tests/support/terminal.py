"""Runs a command on a terminal, with typed input and Ctrl-C."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Self

from tests.support.fake_clock import GUARD_SECONDS


class Terminal:
    """A command on a terminal of its own, as a context manager that kills the process at its end."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, columns: int = 100, lines: int = 40
    ) -> None:
        # the whole output so far, with escape sequences
        self.shown = ""
        self._descriptor, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NAMESRV_ADDR")}
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        os.close(theirs)

    def wait_for(self, text: str, *, count: int = 1) -> None:
        """Return once a text was shown `count` times.

        Raises:
            AssertionError: the text was not shown in time, or the command ended first.
        """
        deadline = time.monotonic() + GUARD_SECONDS
        while self.shown.count(text) < count:
            assert self._read(deadline), f"{text!r} is not in {self.shown!r}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """Close the terminal: the kernel sends SIGHUP to its processes."""
        os.close(self._descriptor)
        self._descriptor = -1

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def interrupt_prompt(self) -> None:
        """Press Ctrl-C at a prompt until output appears: readline loses one between prompt and read."""
        deadline = time.monotonic() + GUARD_SECONDS
        self.interrupt()
        while not select.select([self._descriptor], [], [], 2.0)[0]:
            assert time.monotonic() < deadline, self.shown
            self.interrupt()

    def wait(self) -> int:
        deadline = time.monotonic() + GUARD_SECONDS
        while self._descriptor >= 0 and self._read(deadline):
            pass
        return self._process.wait(GUARD_SECONDS)

    def _read(self, deadline: float) -> bool:
        """Read available output; False at the end."""
        if not select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            # Linux reports EIO when the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(GUARD_SECONDS)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
