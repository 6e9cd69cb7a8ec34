"""Fixtures of the tests of the tables."""

import pytest

from namesrv.routeinfo import admission, registration, revisions, rows, shares, tables


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work lets others run after every second topic, and a change of three is a large one."""
    for module in (admission, registration, rows, shares, tables):
        monkeypatch.setattr(module, "CHUNK_TOPICS", 2)
    monkeypatch.setattr(revisions, "STEP_TOPICS", 2)
    monkeypatch.setattr(tables, "SPARE_NAMES", 2)
