"""The garbage collector's pauses."""

import gc
from collections.abc import Iterator, Mapping

import pytest

from namesrv.server.controller import tune_garbage_collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_few_young_objects_are_looked_at_in_one_go() -> None:
    """However many come and stay, as with a crowd of peers who wait; each is looked at, with those who hold it."""
    looked_at: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            looked_at.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    tune_garbage_collector()
    gc.callbacks.append(note)
    try:
        kept: list[list[object]] = [[] for _ in range(200_000)]
    finally:
        gc.callbacks.remove(note)

    assert len(kept) == 200_000
    assert len(looked_at) >= 80
    assert max(looked_at) <= 15_000
