"""The whole system in simulation: what must hold under any faults holds, and a seed is one run for ever."""

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import Outcome, simulate


def _check(outcome: Outcome) -> None:
    assert not outcome.invariant, f"{outcome.message}\nreplay: make simulate SEED={outcome.seed}"


@pytest.mark.parametrize("seed", range(5))
def test_invariants_hold(seed: int) -> None:
    """Servers, agents and clients under faults keep every promise."""
    _check(simulate(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_invariants_hold_for_a_thousand_seeds(first: int) -> None:
    """The same a thousand times."""
    for seed in range(first, first + 100):
        _check(simulate(seed))


def _checksum(seed: int, hash_seed: str) -> str:
    script = f"from tests.simulation.simulation import simulate; print(simulate({seed}).checksum)"
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", script], env=environ, check=True, capture_output=True).stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_seed_is_one_run(seed: int) -> None:
    """A seed replays byte by byte, in another process with other hashes, too."""
    assert _checksum(seed, "1") == _checksum(seed, "2")
