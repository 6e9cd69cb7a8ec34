"""The role of a request: broker, client or operator."""

from namesrv.processors import processors
from tests.support.in_process import InProcess


async def test_every_request_belongs_to_somebody(server: InProcess) -> None:
    """Each code that is answered has a class, and what waits has one of its own."""
    found = processors(server.namesrv).kinds
    assert {"broker", "client", "admin", "watch"} == set(found.values())
    assert ("broker", "client", "admin", "watch") == tuple(found[code] for code in (103, 105, 106, 20001))
