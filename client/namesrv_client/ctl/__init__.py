"""The command `namesrvctl`; it needs the extra `ctl`."""

from typing import Final

PROGRAM: Final = "namesrvctl"
