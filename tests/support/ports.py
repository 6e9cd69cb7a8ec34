"""Free ports of this machine."""

import os
import random
import socket
from contextlib import ExitStack
from typing import Final

# Linux hands out 32768 and above to whoever asks for any port, us included; below it nobody takes one by chance.
_LOWEST: Final = 20000
_HIGHEST: Final = 32000
# next to its own port a broker takes the one two below (for its VIP channel) and the one above (for replication)
_BELOW: Final = 2
_ABOVE: Final = 1
_TRIES: Final = 100
_PARTS: Final = 4
_PART: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PARTS
_PART_PORTS: Final = (_HIGHEST - _LOWEST) // _PARTS
# by this process: whoever was given one may not listen yet
_given: Final[set[int]] = set()


def free_port(*, below: int = 0, above: int = 0) -> int:
    """A port on which nobody listens, and so are those next to it.

    Raises:
        OSError: none was found.
    """
    for _ in range(_TRIES):
        # a part for each process of the tests: another one may look at the same port in the same moment
        port = random.randrange(_LOWEST + _PART * _PART_PORTS, _LOWEST + (_PART + 1) * _PART_PORTS)
        wanted = set(range(port - below, port + above + 1))
        if not wanted & _given and all(map(_is_free, wanted)):
            _given.update(wanted)
            return port
    raise OSError(f"no free port from {_LOWEST} to {_HIGHEST} in {_TRIES} tries")


def broker_port() -> int:
    """A port for a broker, which takes its neighbours, too."""
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
