"""Comparison with other registries: `python -m benchmarks.peers` (or `make bench-peers`) runs them all.

All from this machine, on the same core, with the same routes, in turn: what counts are the ratios.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks import __main__ as bench
from benchmarks.figures import Figure
from benchmarks.peers import memory, pulls, registration, startup, work
from benchmarks.peers.contestants import Peers
from benchmarks.rounds import Bench


class _Among:
    """A question that is asked of whoever can be had."""

    def __init__(self, doc: str | None, measure: Callable[[Bench], list[Figure]]) -> None:
        self.__doc__ = doc
        self.measure = measure


# in the order of the report
QUESTIONS: Final[Mapping[str, bench.Question]] = {
    "work": _Among(work.__doc__, partial(work.measure, peers=Peers())),
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
