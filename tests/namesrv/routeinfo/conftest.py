"""Fixtures of the tests of the tables."""

import pytest

from namesrv.routeinfo import eviction, registration


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work lets others run after every second topic."""
    monkeypatch.setattr(registration, "CHUNK_TOPICS", 2)
    monkeypatch.setattr(eviction, "CHUNK_TOPICS", 2)
