"""Shrinks a failing plan to the fewest faults that still break the same invariant (delta debugging)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from tests.simulation.faults import Fault
from tests.simulation.simulation import Outcome, simulate

Run = Callable[[int, Sequence[Fault]], Outcome]


def shrunk(failed: Outcome, run: Run = simulate) -> Outcome:
    """The smallest failing run that is found by leaving out faults."""
    best, parts = failed, 2
    while len(best.faults) > 1:
        smaller = _smaller(best, parts, run)
        if smaller is not None:
            best, parts = smaller, max(2, parts - 1)
        elif parts >= len(best.faults):
            break
        else:
            parts = min(len(best.faults), 2 * parts)
    return best


def _smaller(failed: Outcome, parts: int, run: Run) -> Outcome | None:
    """The same failure without one of the parts of the plan, if there is one."""
    faults = failed.faults
    bounds = [len(faults) * number // parts for number in range(parts + 1)]
    for begin, end in pairwise(bounds):
        outcome = run(failed.seed, _without(faults, begin, end))
        if outcome.invariant == failed.invariant:
            return outcome
    return None


def _without(faults: Sequence[Fault], begin: int, end: int) -> list[Fault]:
    return [*faults[:begin], *faults[end:]]
