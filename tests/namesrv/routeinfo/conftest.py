"""Fixtures for tests of the route tables."""

import pytest

from namesrv.routeinfo import checks, shares, topics
from namesrv.routeinfo.tables import revisions, rows, topic_table


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of two topics, so that a change of three topics is a large one."""
    for module in (checks, revisions, rows, shares, topic_table, topics):
        monkeypatch.setattr(module, "CHUNK_TOPICS", 2)
    monkeypatch.setattr(topic_table, "SPARE_NAMES", 2)
