"""What every test gets: each async test runs on both event loops, and hypothesis takes the time it needs."""

import asyncio
import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]  # the daemon runs without it, and so do the tests

# no deadline: a slow moment of the machine says nothing about the code
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops that every async test runs on; their names end up in the test's id."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if uvloop is not None:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
