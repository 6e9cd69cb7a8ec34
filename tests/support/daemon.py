"""A real NameServer in a process of its own, and its log."""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, Self

from namesrv_remoting.aio.server_protocols import PROCESS_PROTOCOLS
from namesrv_testing.ports import held_port
from tests.support.printing_process import Process

LoopName = Literal["auto", "asyncio"]

# uvloop is used where it is installed; `asyncio` runs the server without it
_MISSING: Final[dict[LoopName, tuple[str, ...]]] = {"auto": (), "asyncio": ("uvloop",)}

LogLine = dict[str, Any]


class Daemon(Process):
    """`namesrv` on a free port, as a context manager; the process is gone at its end.

    Flags come after those given here, and the last of a kind counts. The server listens once `listening()` returns.
    `program` is the path of an installed command.
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
        # every line logged so far
        self.log: list[LogLine] = []
        python = (sys.executable, *_python(*_MISSING[loop], *missing_packages))
        with ExitStack() as stack:
            port = stack.enter_context(held_port())
            # without HTTP: its default port is free for only one server
            place = ("--listen-host=127.0.0.1", f"--listen-port={port}", "--http-listen=", "--data-dir", str(data_dir))
            super().__init__(
                [
                    *(python if program is None else (program,)),
                    *place,
                    "--drain-seconds=0",
                    "--log-format=json",
                    *flags,
                ],
                environ=environ,
            )
            # holds the port until the end, even while the process is stopped or killed
            self._stack = stack.pop_all()

    def _note(self, line: str) -> None:
        super()._note(line)
        try:
            self.log.append(json.loads(line))
        except ValueError:  # of a traceback
            self.log.append({"event": "printed", "line": line})

    def wait_for(self, event: str, *, count: int = 1, **fields: object) -> LogLine:
        """The first line (or the `count`th) of an event with these fields, as soon as it is logged.

        Raises:
            AssertionError: the event was not logged in time, or the process ended first.
        """
        self.wait_until(lambda: len(self.lines(event, **fields)) >= count)
        return self.lines(event, **fields)[count - 1]

    def lines(self, event: str, **fields: object) -> list[LogLine]:
        wanted = {"event": event, **fields}.items()
        return [line for line in self.log if all(line.get(name) == value for name, value in wanted)]

    def listening(self) -> Self:
        """Return once the server listens."""
        self.wait_for("listening")
        # another test's server may have used this port with another protocol
        PROCESS_PROTOCOLS.forget(self.where)
        return self

    @property
    def address(self) -> tuple[str, int]:
        return self._listens("addresses")

    @property
    def where(self) -> str:
        """The address as a list of NameServers contains it."""
        return str(self.wait_for("listening")["addresses"][0])

    @property
    def http_address(self) -> tuple[str, int]:
        return self._listens("http")

    def _listens(self, name: str) -> tuple[str, int]:
        host, _, port = self.wait_for("listening")[name][0].rpartition(":")
        return host.strip("[]"), int(port)

    def __exit__(self, *raised: object) -> None:
        """Stop the server gracefully so that its coverage is written, or kill it after a failure."""
        with self._stack:
            try:
                if self.is_running and not any(raised):
                    # a process stopped by SIGSTOP would not notice SIGTERM
                    self.send_signal(signal.SIGCONT)
                    self.stop()
            finally:
                super().__exit__(*raised)


def _python(*missing_packages: str) -> tuple[str, ...]:
    """Python arguments of a server that runs without these packages."""
    if not missing_packages:
        return ("-m", "namesrv")
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing_packages!r}))"
    return ("-c", f"{hide}; from namesrv.cli import main; sys.exit(main())")


# the fixture value that starts a server with flags
Start = Callable[..., Daemon]
