"""The web console: what every NameServer says, when it last heard each broker, and where they disagree."""

from typing import Final

PROGRAM: Final = "namesrv-console"
