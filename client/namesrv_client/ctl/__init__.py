"""The command `namesrvctl`, a wheel of its own."""

from enum import IntEnum
from typing import Final

PROGRAM: Final = "namesrvctl"


class ExitCode(IntEnum):
    """The exit codes."""

    # done, or yes
    OK = 0
    # no: the topic is absent, servers differ, one refused, or one whose answer counts did not answer
    NO = 1
    # wrong usage, or no server answered
    USAGE = 2
    # a bug of our own, with a traceback; Python's own code for that is 1
    BUG = 70
    # Ctrl-C, where that is not the ordinary end
    INTERRUPTED = 130
