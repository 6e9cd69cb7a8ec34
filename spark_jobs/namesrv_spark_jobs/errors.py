"""The name of the command, its exit codes, and the error that its user can put right."""

from typing import Final

PROGRAM: Final = "namesrv-staleness"

# the report is there, and no gate found anything
OK: Final = 0
# the report is there, and a gate (--fail-if, --max-bad-ratio) says no
GATE: Final = 1
# nothing was computed: wrong usage, no input that can be read, no Java, no cluster
USAGE: Final = 2
# a bug of our own, with a traceback; Python's own code for that is 1
BUG: Final = 70
# Ctrl-C or SIGTERM; the old report, if there was one, is untouched
INTERRUPTED: Final = 130


class UsageError(Exception):
    """Something that the user can put right; the message is one line that says what is wrong and where."""


class MissingPackageError(UsageError):
    """A package is not installed that the wheel requires."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"{package} is not installed; in a clone make setup brings it, elsewhere pip install -r namesrv-report.txt "
            "of make dist"
        )


class MissingFileError(UsageError):
    """A file that was to be read is not there any more."""


class EngineError(Exception):
    """The engine failed; the message is one line, and the cause has the rest."""


class NothingToReadError(UsageError):
    """There is no line, or not one that could be read."""

    def __init__(self, lines: int) -> None:
        garbage = f"no line of {lines:,} could be read; is this a heartbeat log?"
        super().__init__(garbage if lines else "empty; no line to read")
