"""Runs a real server in a process of its own, and reads its log."""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from tests.support.printing_process import Process

LoopName = Literal["auto", "asyncio"]

# The daemon takes uvloop where it is installed; `asyncio` is what it runs on where it is not.
_MISSING: Final[dict[LoopName, tuple[str, ...]]] = {"auto": (), "asyncio": ("uvloop",)}

LogLine = dict[str, Any]


class Daemon(Process):
    """`namesrv` on a free port of this machine, as a context manager; at its end the process is gone, whatever happens.

    Flags come after those given here, and the last of a kind counts. It listens once `listening()` returns.
    `program` is a command that is installed elsewhere.
    """

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        loop: LoopName = "auto",
        missing_packages: tuple[str, ...] = (),
        program: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        # every line that was logged so far
        self.log: list[LogLine] = []
        # no HTTP: its usual port is free for one server of this machine only
        place = ("--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", "--data-dir", str(data_dir))
        python = (sys.executable, *_python(*_MISSING[loop], *missing_packages))
        super().__init__(
            [*(python if program is None else (program,)), *place, "--drain-seconds=0", "--log-format=json", *flags],
            environ=environ,
        )

    def _note(self, line: str) -> None:
        super()._note(line)
        try:
            self.log.append(json.loads(line))
        except ValueError:  # of a traceback
            self.log.append({"event": "printed", "line": line})

    def wait_for(self, event: str, *, count: int = 1, **fields: object) -> LogLine:
        """The first line (or the `count`th) of an event with these fields, as soon as it is logged.

        Raises:
            AssertionError: it is not logged in time, or the process ended without.
        """
        self.wait_until(lambda: len(self.lines(event, **fields)) >= count)
        return self.lines(event, **fields)[count - 1]

    def lines(self, event: str, **fields: object) -> list[LogLine]:
        wanted = {"event": event, **fields}.items()
        return [line for line in self.log if all(line.get(name) == value for name, value in wanted)]

    def listening(self) -> Self:
        """Return once it listens."""
        self.wait_for("listening")
        # what a server spoke that had this port before, in another test
        PROCESS_PROTOCOLS.forget(self.where)
        return self

    @property
    def address(self) -> tuple[str, int]:
        return self._listens("addresses")

    @property
    def where(self) -> str:
        """The same, as a list of NameServers has it."""
        return str(self.wait_for("listening")["addresses"][0])

    @property
    def http_address(self) -> tuple[str, int]:
        return self._listens("http")

    def _listens(self, name: str) -> tuple[str, int]:
        host, _, port = self.wait_for("listening")[name][0].rpartition(":")
        return host.strip("[]"), int(port)

    def __exit__(self, *raised: object) -> None:
        """End it in order, so that its coverage is written, or after a failure by force."""
        try:
            if self.is_running and not any(raised):
                # one that is stopped (SIGSTOP) would not notice
                self.send_signal(signal.SIGCONT)
                self.stop()
        finally:
            super().__exit__(*raised)


def _python(*missing_packages: str) -> tuple[str, ...]:
    """Python's arguments for a server that is installed without some packages."""
    if not missing_packages:
        return ("-m", "namesrv")
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing_packages!r}))"
    return ("-c", f"{hide}; from namesrv.cli import main; sys.exit(main())")


# what a fixture hands out that starts one with flags
Start = Callable[..., Daemon]
