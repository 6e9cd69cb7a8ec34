"""Planted bugs: the simulation finds bugs that are planted into our code."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_source_of_every_planted_bug_occurs_once(mutation: Mutation) -> None:
    """The source text that a planted bug replaces occurs once in its module."""
    spec = importlib.util.find_spec(mutation.module)
    assert spec is not None
    assert Path(str(spec.origin)).read_text(encoding="utf-8").count(mutation.old) == 1


def hunt(*arguments: str) -> None:
    """Look for planted bugs, each of which has to be found."""
    command = [sys.executable, "-m", "tests.simulation.mutations", *arguments]
    done = subprocess.run(command, cwd=PAGE.parents[1], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_removals_find_an_unregistration_that_is_not_fenced() -> None:
    """A few runs of removals contain the race: a broker returns before its old unregistration arrives."""
    hunt("--plan", "removals", "--only", "is not fenced", "--count", "5")


@pytest.mark.slow
def test_planted_bugs_are_found() -> None:
    """Each bug is found by its seed in docs/simulation.md, or else by one of the first 1,000 seeds."""
    hunt("--replay", str(PAGE))
