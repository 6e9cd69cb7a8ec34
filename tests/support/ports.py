"""Free ports of this machine."""

import os
import random
import socket
from contextlib import ExitStack
from typing import Final

# Linux assigns ephemeral ports from 32768; ports below it are never assigned by chance.
_LOWEST: Final = 20000
_HIGHEST: Final = 32000
# next to its own port a broker listens two below (its VIP channel) and one above (replication)
_BELOW: Final = 2
_ABOVE: Final = 1
_TRIES: Final = 100
_PARTS: Final = 4
_PART: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PARTS
_PART_PORTS: Final = (_HIGHEST - _LOWEST) // _PARTS
# assigned by this process; their users may not listen yet
_given: Final[set[int]] = set()


def free_port(*, below: int = 0, above: int = 0) -> int:
    """A free port whose neighbours are free, too.

    Raises:
        OSError: no such port was found.
    """
    for _ in range(_TRIES):
        # each test process has its own part, because another process may try the same port at the same time
        port = random.randrange(_LOWEST + _PART * _PART_PORTS, _LOWEST + (_PART + 1) * _PART_PORTS)
        wanted = set(range(port - below, port + above + 1))
        if not wanted & _given and all(map(_is_free, wanted)):
            _given.update(wanted)
            return port
    raise OSError(f"no free port from {_LOWEST} to {_HIGHEST} in {_TRIES} tries")


def broker_port() -> int:
    """A free port for a broker, which takes its neighbours, too."""
    return free_port(below=_BELOW, above=_ABOVE)


def _is_free(port: int) -> bool:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
