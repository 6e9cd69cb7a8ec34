"""Set-up of every test of `namesrvctl`: one event loop for the servers; the command runs on its own, in a thread."""

import asyncio
from collections.abc import Callable


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Servers are tested on both loops elsewhere."""
    return {"asyncio": asyncio.new_event_loop}
