"""Runs a command that prints what it does, and waits until it has printed something."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from typing import Self

from tests.support.guard import GUARD_SECONDS
from tests.support.heard import Heard


class TalkingProcess:
    """A command, as a context manager; at its end the process is gone, whatever happens."""

    def __init__(self, *command: str, **environ: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**kept, "PYTHONUNBUFFERED": "1", **environ},
        )
        self._heard = Heard(self._process.stdout, str)
        # every line of both outputs so far, in the order in which they came
        self.lines = self._heard.all

    def said(self, pattern: str) -> list[str]:
        """The lines so far that match somewhere."""
        return [line for line in self.lines if re.search(pattern, line)]

    def wait_for(self, pattern: str, *, count: int = 1, within: float = GUARD_SECONDS) -> str:
        """The first line (or the `count`th) that matches somewhere, as soon as it is said.

        Raises:
            AssertionError: it is not said in time, or the process ended without.
        """
        is_said = self._heard.wait_until(lambda: len(self.said(pattern)) >= count, within)
        found = self.said(pattern)
        assert is_said, f"{len(found)} of {count} lines with {pattern!r} in {self.lines[-20:]}"
        return found[count - 1]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self) -> int:
        """Tell it to end; its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, *, within: float = GUARD_SECONDS) -> int:
        """The exit code, once it has ended and all it said is there; negative: the signal that ended it."""
        code = self._process.wait(within)
        self._heard.to_the_end(GUARD_SECONDS)
        return code

    def __enter__(self) -> Self:
        """Itself; the process runs already."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process if it still runs."""
        self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __repr__(self) -> str:
        arguments = self._process.args
        shown = " ".join(map(str, arguments)) if isinstance(arguments, Sequence) else arguments
        return f"<TalkingProcess [{shown} | {len(self.lines)} lines]>"
