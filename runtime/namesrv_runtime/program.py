"""Start and end of each of our commands: standard streams, Ctrl-C, exit code, version.

The commands are named here and not beside their code, because to import `namesrv_client.ctl.cli` is to import all of
the client first, and Ctrl-C meanwhile would be a traceback. So this file imports next to nothing itself.
"""

import io
import os
import signal
import sys
from functools import partial
from importlib import import_module
from typing import Any, Final, NoReturn, TextIO

EXIT_FAILED: Final = 1
# what a shell reports for a command that SIGINT or SIGPIPE ended
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
_STANDARD_ERROR: Final = 2


def run(name: str, module: str) -> NoReturn:
    """Run the module's `main` and exit with its code."""
    # In the background of a script it is ignored, and stays so. No exception: an import could make anything of it.
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
            # here, where it can still be said that it does not work
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
    """The version of what is installed: all of our wheels have the same, and this file is in the first one."""
    from importlib import metadata  # noqa: PLC0415  # takes its time, and few ask for it

    try:
        return metadata.version("namesrv-wire")
    except metadata.PackageNotFoundError:
        # a clone, which installs everything under one name
        return metadata.version("namesrv")


def not_installed(package: str, wheel: str) -> str:
    """What to say of a package that is missing, and that one of our wheels requires."""
    remedy = f"in a clone make setup brings it, elsewhere pip install -r {wheel}.txt of make dist"
    return f"{package} is not installed; {remedy}"


def _open_streams(name: str) -> None:
    """Take care of standard streams that are closed, or that cannot be written to."""
    # A socket or a data file that got the number 2 would be written to by whatever complains, and libuv aborts when it
    # closes one. Standard output is opened for reading, so that an answer that nobody gets is an error.
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # lasts as long as the process
    sys.stdout = _text_stream(_Stream(1, name), sys.stdout)
    sys.stderr = _text_stream(_Stream(_STANDARD_ERROR, name), sys.stderr)


def _text_stream(raw: io.FileIO, old: TextIO | None) -> TextIO:
    encoding = None if old is None else old.encoding
    is_unbuffered = isinstance(old, io.TextIOWrapper) and old.write_through
    # a terminal that cannot show a character shows its number
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.isatty(), write_through=is_unbuffered
    )


class _Stream(io.FileIO):
    """Standard output or error. A command ends when its answers cannot be written, quietly when who reads has enough.

    What cannot be written to standard error is lost, and the exit code has to do.
    """

    def __init__(self, descriptor: int, program: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._program = program

    def write(self, data: Any, /) -> int:
        """Write, or end the command, or pretend to."""
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == _STANDARD_ERROR:
                return memoryview(data).nbytes
            # Python tries again at exit what is left to write
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(EXIT_PIPE_CLOSED) from None
            sys.stderr.write(f"{self._program}: standard output: {str(error.strerror).lower()}\n")
            raise SystemExit(EXIT_FAILED) from None
