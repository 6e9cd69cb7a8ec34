"""The name of the command, its exit codes and its errors."""

from typing import Final

PROGRAM: Final = "namesrv-staleness"

# the report is written, and no gate failed
OK: Final = 0
# the report is written, and a gate (--fail-if, --max-bad-ratio) failed
GATE: Final = 1
# the report is written, and standard output cannot be written to; namesrvctl has the same code
OUTPUT: Final = 1
# nothing was computed: wrong usage, no readable input, no Java, no cluster
USAGE: Final = 2
# a bug in this program, with a traceback; Python itself would exit with 1
BUG: Final = 70
# Ctrl-C or SIGTERM; an older report is untouched
INTERRUPTED: Final = 130


class UsageError(Exception):
    """An error that the user can correct; the message is one line with the offending value."""


class MissingPackageError(UsageError):
    """A package that the wheel requires is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"{package} is not installed; in a clone make setup brings it, elsewhere pip install -r namesrv-report.txt "
            "of make dist"
        )


class MissingFileError(UsageError):
    """An input file was removed or renamed before it was read."""


class EngineError(Exception):
    """The engine failed; the message is one line, and the cause has the details."""


class NothingToReadError(UsageError):
    """The input has no line, or no line that can be read."""

    def __init__(self, lines: int) -> None:
        garbage = f"no line of {lines:,} could be read; is this a heartbeat log?"
        super().__init__(garbage if lines else "empty; no line to read")
