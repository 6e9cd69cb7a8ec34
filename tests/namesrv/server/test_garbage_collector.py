"""Pauses of the garbage collector."""

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


def test_young_collections_visit_few_objects() -> None:
    """A collection of a young generation visits at most 15,000 objects, however many stay alive."""
    visited: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            visited.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    tune_garbage_collector()
    gc.callbacks.append(note)
    try:
        kept: list[list[object]] = [[] for _ in range(200_000)]
    finally:
        gc.callbacks.remove(note)

    assert len(kept) == 200_000
    assert len(visited) >= 80
    assert max(visited) <= 15_000
