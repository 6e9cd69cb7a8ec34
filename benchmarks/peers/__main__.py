"""Comparison with Apache's NameServer: `python -m benchmarks.peers` (or `make bench-peers`) runs both.

Both from this machine, on the same core, with the same brokers, in turn: what counts are the ratios.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks import __main__ as bench
from benchmarks.peers import memory, pulls, registration, startup

# in the order of the report
QUESTIONS: Final[Mapping[str, bench.Question]] = {
    "pulls": pulls,
    "registration": registration,
    "memory": memory,
    "startup": startup,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write where the options say."""
    return bench.main(arguments, QUESTIONS, "python -m benchmarks.peers")


if __name__ == "__main__":
    sys.exit(main())
