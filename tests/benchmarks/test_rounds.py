"""The order in which things are measured, and where they run."""

import os
from functools import partial
from pathlib import Path

import pytest

from benchmarks.rounds import Bench, Cores, Effort


def test_every_other_round_goes_backwards(capsys: pytest.CaptureFixture[str]) -> None:
    """No case always comes first, and each case's values are in the order of the rounds."""
    bench = Bench(Effort(rounds=3, seconds=1), Cores(None, None), Path("load"), Path("limit"))
    called: list[str] = []

    def call(name: str) -> int:
        called.append(name)
        return len(called)

    found = bench.in_turn("things", {name: partial(call, name) for name in ("a", "b")})

    assert ["a", "b", "b", "a", "a", "b"] == called
    assert {"a": [1, 4, 5], "b": [2, 3, 6]} == found
    assert capsys.readouterr().err.splitlines()[-1] == "bench: things, round 3 of 3"


@pytest.mark.parametrize(
    ("allowed", "expected"), [({3}, Cores(None, None)), ({5, 2}, Cores(2, 5)), ({0, 1, 2}, Cores(0, 1))]
)
def test_server_and_load_get_a_core_each(allowed: set[int], expected: Cores, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two that we may use; with a single one nobody is pinned."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)

    assert expected == Cores.ours()
