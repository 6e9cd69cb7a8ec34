"""Runs a real server in a process of its own, and reads its log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, Self

from tests.support.guard import GUARD_SECONDS
from tests.support.heard import Heard

LoopName = Literal["auto", "asyncio"]

# The daemon takes uvloop where it is installed; `asyncio` is what it runs on where it is not.
_MISSING: Final[dict[LoopName, tuple[str, ...]]] = {"auto": (), "asyncio": ("uvloop",)}

LogLine = dict[str, Any]


class Daemon:
    """`namesrv` on a free port of this machine, as a context manager; at its end the process is gone, whatever happens.

    Flags come after those given here, and the last of a kind counts. It listens once `listening()` returns.
    """

    def __init__(
        self, data_dir: Path, *flags: str, loop: LoopName = "auto", missing_packages: tuple[str, ...] = ()
    ) -> None:
        self.data_dir = data_dir
        # no HTTP: its usual port is free for one server of this machine only
        place = ("--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", "--data-dir", str(data_dir))
        self._process = subprocess.Popen(
            [
                sys.executable,
                *_run(*_MISSING[loop], *missing_packages),
                *place,
                "--drain-seconds",
                "0",
                "--log-format",
                "json",
                *flags,
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # what is set for a server of the developer's says nothing about this one
            env={name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")},
        )
        self._heard = Heard(self._process.stderr, _log_line)
        # every line that was logged so far
        self.log = self._heard.all

    # -- the log ------------------------------------------------------------------------------------------------------

    def wait_for(self, event: str, *, count: int = 1, **fields: object) -> LogLine:
        """The first line (or the `count`th) of an event with these fields, as soon as it is logged.

        Raises:
            AssertionError: it is not logged in time, or the process ended without.
        """
        is_logged = self._heard.wait_until(lambda: len(self.lines(event, **fields)) >= count, GUARD_SECONDS)
        found = self.lines(event, **fields)
        assert is_logged, f"{len(found)} of {count} lines of {event} {fields} in {self.log[-20:]}"
        return found[count - 1]

    def lines(self, event: str, **fields: object) -> list[LogLine]:
        """What was logged of an event with these fields, so far."""
        return [
            line
            for line in self.log
            if line["event"] == event and all(line.get(name) == value for name, value in fields.items())
        ]

    def listening(self) -> Self:
        """Return once it listens."""
        self.wait_for("listening")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self.wait_for("listening")["addresses"][0].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def http_address(self) -> tuple[str, int]:
        """Where it shows health and metrics."""
        host, _, port = self.wait_for("listening")["http"][0].rpartition(":")
        return host.strip("[]"), int(port)

    # -- the process --------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self) -> int:
        """Tell it to stop; its exit code."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """The exit code, once it has ended and all it said is in the log; negative: the signal that ended it."""
        code = self._process.wait(GUARD_SECONDS)
        self._heard.to_the_end(GUARD_SECONDS)
        return code

    def __enter__(self) -> Self:
        """Itself; the process runs already."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process if it still runs: in good order, so that its coverage is written, or by force."""
        try:
            if self.is_running and not any(raised):
                # one that is stopped (SIGSTOP) would not notice
                self.send_signal(signal.SIGCONT)
                self.stop()
        finally:
            self._process.kill()
            self.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else f"ended with {self._process.returncode}"
        return f"<Daemon [{self.pid} | {state} | {len(self.log)} lines]>"


def _log_line(line: str) -> LogLine:
    """One that is no JSON, as of a traceback, has the event "printed"."""
    try:
        entry: LogLine = json.loads(line)
    except ValueError:
        return {"event": "printed", "line": line.rstrip()}
    return entry


def _run(*missing_packages: str) -> tuple[str, ...]:
    """Python's arguments for a server that is installed without some packages."""
    if not missing_packages:
        return ("-m", "namesrv")
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing_packages!r}))"
    return ("-c", f"{hide}; from namesrv.cli import main; sys.exit(main())")


# what a fixture hands out that starts one with flags
Start = Callable[..., Daemon]
