"""The web console: the reported state of every NameServer, when each broker was last seen, and all disagreements."""

from typing import Final

PROGRAM: Final = "namesrv-console"
