"""Does the simulation notice? Bugs are planted into our code, and it finds them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, read_seeds

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_every_planted_bug_is_on_the_page() -> None:
    """With the seed that found it."""
    assert {mutation.name for mutation in MUTATIONS} == read_seeds(PAGE).keys()


@pytest.mark.slow
def test_planted_bugs_are_found() -> None:
    """Each by the seed that the page names; `--write docs/simulation.md` writes the table anew."""
    command = [sys.executable, "-m", "tests.simulation.mutations", "--replay", str(PAGE)]
    done = subprocess.run(command, cwd=PAGE.parents[1], check=False, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout + done.stderr
