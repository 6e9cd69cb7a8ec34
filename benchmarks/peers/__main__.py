"""Comparison with other registries: `python -m benchmarks.peers` (or `make bench-peers`) runs them all.

All from this machine, on the same core, with the same routes, in turn: what counts are the ratios.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from benchmarks import __main__ as bench
from benchmarks.figures import Figure
from benchmarks.peers import memory, registration, startup, two_cores, work
from benchmarks.peers.contestants import Peers
from benchmarks.rounds import Bench


class _Among:
    """A question about whoever can be had."""

    def __init__(self, question: "_Question", peers: Peers) -> None:
        self.__doc__ = question.__doc__
        self._question = question
        self._peers = peers

    def measure(self, bench: Bench) -> list[Figure]:
        """Raises BenchError when there is no answer."""
        return self._question.measure(bench, self._peers)


class _Question(Protocol):
    """A file of this folder that measures something; its docstring says what."""

    __doc__: str | None

    def measure(self, bench: Bench, peers: Peers) -> list[Figure]:
        """The answer. Raises BenchError when there is none."""
        ...


# in the order of the report
QUESTIONS: Final[Mapping[str, _Question]] = {
    "work": work,
    "two_cores": two_cores,
    "startup": startup,
    "registration": registration,
    "memory": memory,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write where the options say."""
    ours = argparse.ArgumentParser(add_help=False)
    ours.add_argument(
        "--rocketmq-rust",
        type=Path,
        metavar="PROGRAM",
        help="rocketmq-rust's NameServer, instead of building its crate",
    )
    given, _ = ours.parse_known_args(arguments)
    peers = Peers(given.rocketmq_rust)
    questions = {name: _Among(question, peers) for name, question in QUESTIONS.items()}
    return bench.main(arguments, questions, "python -m benchmarks.peers", parents=[ours])


if __name__ == "__main__":
    sys.exit(main())
