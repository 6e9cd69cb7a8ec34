"""Locations of the real peers, and the tools that this machine lacks."""

from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
# The directory of the files that setup.sh fetches and compiles.
INTEROP: Final = ROOT / ".interop"


def class_path(peer: str) -> str:
    """The Java class path of a peer, such as `broker-5`.

    Raises:
        FileNotFoundError: the peer was not fetched.
    """
    jars = INTEROP / peer / "lib"
    if not (INTEROP / peer / "stamp").exists():
        raise FileNotFoundError(f"{jars} is not there: tests/interop/setup.sh fetches it")
    return f"{jars}/*"


@cache
def absent_tools() -> frozenset[str]:
    """The tools that setup.sh did not find on this machine.

    Raises:
        FileNotFoundError: setup.sh did not run.
    """
    return frozenset((INTEROP / "absent").read_text(encoding="utf-8").split())
