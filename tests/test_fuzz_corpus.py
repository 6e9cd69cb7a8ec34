"""What the coverage-guided fuzzer (`make fuzz-coverage`) has found worth keeping, once more."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("fuzz") / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_readers_refuse_what_they_cannot_read_in_their_own_way(name: str) -> None:
    """Each of the inputs, of which a target has at least one."""
    files = sorted((CORPUS / name).iterdir())

    assert files
    for file in files:
        TARGETS[name](file.read_bytes())
