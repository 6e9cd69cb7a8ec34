"""The role of a request: broker, client or operator."""

from pathlib import Path

from namesrv.processors import processors
from tests.support.in_process import namesrv_in_process


async def test_every_request_belongs_to_somebody(tmp_path: Path) -> None:
    """Each code that is answered has a class, and what waits has one of its own."""
    async with namesrv_in_process(tmp_path) as server:
        found = processors(server.namesrv).kinds
    assert {"broker", "client", "admin", "watch"} == set(found.values())
    assert ("broker", "client", "admin", "watch") == tuple(found[code] for code in (103, 105, 106, 20001))
