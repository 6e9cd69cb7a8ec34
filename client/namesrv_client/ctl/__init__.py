"""The command `namesrvctl`, a wheel of its own."""

from enum import IntEnum
from typing import Final

PROGRAM: Final = "namesrvctl"


class ExitCode(IntEnum):
    """The exit codes."""

    # Done, or yes.
    OK = 0
    # No: the topic is absent, servers differ, a server refused, or a required server did not respond.
    NO = 1
    # Wrong usage, or no server answered.
    USAGE = 2
    # A bug of our own, with a traceback; Python's own code for that is 1.
    BUG = 70
    # Ctrl-C, in a command that usually ends without Ctrl-C.
    INTERRUPTED = 130
