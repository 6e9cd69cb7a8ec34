"""Inputs kept from the coverage-guided fuzzer (`make fuzz-coverage`)."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("fuzz") / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_readers_accept_or_refuse_the_corpus(name: str) -> None:
    """Each target has at least one input, and raises only its own error."""
    files = sorted((CORPUS / name).iterdir())

    assert files
    for file in files:
        TARGETS[name](file.read_bytes())
