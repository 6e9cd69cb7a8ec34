"""The exit codes of namesrvctl."""

from typing import Final

# done, or yes
OK: Final = 0
# no: the topic is absent, servers differ, one refused, or one whose answer counts did not answer
NO: Final = 1
# wrong usage, or no server answered
USAGE: Final = 2
# a bug of our own, with a traceback; Python's own code for that is 1
BUG: Final = 70
# Ctrl-C, where that is not the ordinary end
INTERRUPTED: Final = 130
