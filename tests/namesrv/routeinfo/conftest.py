"""What do the tests of the tables share?

`pytest tests/namesrv/routeinfo --hypothesis-profile=fuzz` lets the state machine run for many minutes.
"""

import pytest
from hypothesis import HealthCheck, settings

from namesrv.routeinfo import eviction, registration

settings.register_profile(
    "fuzz", deadline=None, max_examples=20_000, stateful_step_count=60, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work lets others run after every second topic."""
    monkeypatch.setattr(registration, "CHUNK_TOPICS", 2)
    monkeypatch.setattr(eviction, "CHUNK_TOPICS", 2)
