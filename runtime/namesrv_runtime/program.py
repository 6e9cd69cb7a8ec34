"""Start and end of each of our commands: standard streams, Ctrl-C, exit code, version.

The commands are named here and not beside their code: importing `namesrv_client.ctl.cli` imports the whole client,
and Ctrl-C during that import would print a traceback. For the same reason this file imports very little.
"""

import io
import os
import signal
import sys
from functools import partial
from importlib import import_module
from typing import Any, Final, NoReturn, TextIO

EXIT_FAILED: Final = 1
# exit codes that a shell reports for commands ended by SIGINT and SIGPIPE
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
_STANDARD_ERROR: Final = 2


def run(name: str, module: str) -> NoReturn:
    """Run the module's `main` and exit with its code."""
    # SIGINT is ignored for background commands of a script, and stays ignored. During imports the handler exits at
    # once and raises nothing, because an import may catch the exception.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    _open_streams(name)
    main = import_module(module).main
    try:
        if is_interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            code = main()
        finally:
            # flushed here and not at exit, where an error could no longer be reported
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


# the commands, by the names under which they are installed
namesrv = partial(run, "namesrv", "namesrv.cli")
namesrv_broker_agent = partial(run, "namesrv-broker-agent", "namesrv_broker_agent.cli")
namesrvctl = partial(run, "namesrvctl", "namesrv_client.ctl.cli")
namesrv_console = partial(run, "namesrv-console", "namesrv_console.cli")


def version() -> str:
    """The installed version: all wheels of this project have the same one, and this file is in the first wheel."""
    from importlib import metadata  # noqa: PLC0415  # a slow import that few callers need

    try:
        return metadata.version("namesrv-wire")
    except metadata.PackageNotFoundError:
        # A clone installs all packages under the name of the project.
        return metadata.version("namesrv")


def not_installed(package: str, wheel: str) -> str:
    """The error message for a missing package that one of our wheels requires."""
    remedy = f"in a clone make setup brings it, elsewhere pip install -r {wheel}.txt of make dist"
    return f"{package} is not installed; {remedy}"


def _open_streams(name: str) -> None:
    """Replace standard streams that are closed, and handle write errors on the others."""
    # If descriptor 2 were free, a socket or data file could get that number, and error messages would be written into
    # the socket or file; libuv aborts when it closes descriptor 2. Standard output is opened for reading, so that
    # output that cannot reach anyone is an error.
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # os.open takes the lowest free number, which is `descriptor`
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # the stream lasts as long as the process
    sys.stdout = _text_stream(_Stream(1, name), sys.stdout)
    sys.stderr = _text_stream(_Stream(_STANDARD_ERROR, name), sys.stderr)


def _text_stream(raw: io.FileIO, old: TextIO | None) -> TextIO:
    encoding = None if old is None else old.encoding
    is_unbuffered = isinstance(old, io.TextIOWrapper) and old.write_through
    # A terminal that cannot show a character shows its code point.
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.isatty(), write_through=is_unbuffered
    )


class _Stream(io.FileIO):
    """Standard output or error. A command ends when its output cannot be written, quietly when the reader has left.

    Text that cannot be written to standard error is lost; the exit code still reports the failure.
    """

    def __init__(self, descriptor: int, program: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._program = program

    def write(self, data: Any, /) -> int:
        """Write to the descriptor; on failure end the command (standard output) or drop the text (standard error)."""
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == _STANDARD_ERROR:
                return memoryview(data).nbytes
            # Python would try the buffered text again at exit, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(EXIT_PIPE_CLOSED) from None
            sys.stderr.write(f"{self._program}: standard output: {str(error.strerror).lower()}\n")
            raise SystemExit(EXIT_FAILED) from None
