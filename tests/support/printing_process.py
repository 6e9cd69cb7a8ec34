"""A command whose output lines a test waits for."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.fake_clock import GUARD_SECONDS


class Process:
    """A command, as a context manager that kills the process at its end.

    With a home, the process runs in it and writes standard error to the file `printed.log` there. NAMESRV_ variables of
    the developer's environment are removed.
    """

    # limit for `stop` and `wait`
    end_seconds = GUARD_SECONDS

    def __init__(
        self, command: Sequence[str | Path], *, home: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._home = home
        # every line so far, in order
        self._lines: list[str] = []
        self._command = command
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
        with contextlib.ExitStack() as stack:
            if home is not None:
                home.mkdir(parents=True, exist_ok=True)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if home is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if home is None else stack.enter_context((home / "printed.log").open("ab")),
                encoding="utf-8",
                errors="replace",
                cwd=home,
                env={**kept, "PYTHONUNBUFFERED": "1", **(environ or {})},
            )
        self._has_news = threading.Condition()
        self._is_silent = False
        # reads all the time: a full pipe would block the process
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._has_news:
                self._note(line.rstrip("\n"))
                self._has_news.notify_all()
        with self._has_news:
            self._is_silent = True
            self._has_news.notify_all()

    def _note(self, line: str) -> None:
        self._lines.append(line)

    def wait_until(self, condition: Callable[[], object], *, within: float = GUARD_SECONDS) -> None:
        """Return as soon as a condition on the output holds.

        Raises:
            AssertionError: the condition did not hold in time, or the process ended first.
        """
        with self._has_news:
            self._has_news.wait_for(lambda: self._is_silent or condition(), within)
            assert condition(), f"{self} after {within:g} s: {self._lines[-20:]} {self.printed()[-2000:]}"

    def printed(self) -> str:
        """The process's standard error, if it has a home."""
        return "" if self._home is None else (self._home / "printed.log").read_text(encoding="utf-8", errors="replace")

    def write_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """The exit code once the process has ended and all output is read; negative: the signal that ended it."""
        code = self._process.wait(self.end_seconds)
        self._reader.join(self.end_seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended with {self._process.returncode}"
        shown = " ".join(map(str, self._command))
        return f"<{type(self).__name__} [{shown[:200]} | {self.pid} | {state} | {len(self._lines)} lines]>"


class PatternProcess(Process):
    """A command whose lines are searched by pattern."""

    @property
    def lines(self) -> list[str]:
        return self._lines

    def lines_matching(self, pattern: str) -> list[str]:
        """The lines so far that match somewhere."""
        return [line for line in self.lines if re.search(pattern, line)]

    def wait_for(self, pattern: str, *, count: int = 1, within: float = GUARD_SECONDS) -> str:
        """The first line (or the `count`th) that matches somewhere, as soon as it is printed.

        Raises:
            AssertionError: the line was not printed in time, or the process ended first.
        """
        self.wait_until(lambda: len(self.lines_matching(pattern)) >= count, within=within)
        return self.lines_matching(pattern)[count - 1]


class PrintingProcess(PatternProcess):
    """A command without a home, given as words and environment variables."""

    def __init__(self, *command: str, **environ: str) -> None:
        super().__init__(command, environ=environ)


# Begin of a script that reports in lines of JSON; `connections()` counts the script's connections to `server`.
PRELUDE = """
import gc, json, os, signal, socket, sys, threading

loop = sys.argv[1]
if loop == "asyncio":
    sys.modules["uvloop"] = None


def report(**news):
    # in one write, because the child of a fork writes into the same pipe
    os.write(1, (json.dumps(news) + "\\n").encode())


def connections():
    found = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as other:
                found += "%s:%d" % other.getpeername()[:2] == server
        except (OSError, TypeError):
            pass
    return found


"""


@contextlib.contextmanager
def run_script(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a Python process with our import path until the block ends; its output is text in a pipe."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_report(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next reported line of a script."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended"
    news: dict[str, Any] = json.loads(line)
    return news
