"""Compares alternatives in turn, in several short rounds, because the machine drifts."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time is spent on it."""

    rounds: int
    # of load in each round, for each of the things compared
    seconds: int
    # the sizes of servers that are measured end to end
    profiles: tuple[str, ...] = ("S", "M", "L")

    @property
    def is_quick(self) -> bool:
        """Whether a rough idea is enough."""
        return self.rounds < FULL.rounds


# Five rounds: one that somebody else disturbed, even two, do not move the median.
FULL = Effort(rounds=5, seconds=2)
QUICK = Effort(rounds=2, seconds=1, profiles=("S",))


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where. Both None: there is only one, and what is measured is how the two share it."""

    server: int | None
    load: int | None

    @classmethod
    def ours(cls) -> "Cores":
        """The first two that we may run on."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement needs."""

    effort: Effort
    cores: Cores
    # compiled: load.c, limit.c
    load_program: Path
    limit_program: Path

    def progress(self, text: str) -> None:
        """Tell whoever waits what is going on."""
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def in_turn(self, what: str, cases: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """Each case once in each round; every other round backwards, so that no case always comes first."""
        found: dict[str, list[T]] = {name: [] for name in cases}
        for number in range(self.effort.rounds):
            self.progress(f"{what}, round {number + 1} of {self.effort.rounds}")
            names = list(cases)[:: 1 if number % 2 == 0 else -1]
            for name in names:
                found[name].append(cases[name]())
        return found
