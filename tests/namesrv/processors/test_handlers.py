"""Handlers match the table of requests."""

from typing import get_type_hints

from namesrv.processors import typed_handlers
from namesrv_remoting.requests import REQUESTS
from tests.support.in_process import InProcess


def test_parameters_of_handlers_match_the_table(server: InProcess) -> None:
    """Each request to the server has a handler whose parameters are the request and the row's header and body."""
    handlers = typed_handlers(server.namesrv)

    taken = {
        code: [hint for name, hint in get_type_hints(each).items() if name not in ("request", "return")]
        for code, each in handlers.items()
    }
    rows = {
        code: [kind for kind in (row.header, row.body) if kind is not None]
        for code, row in REQUESTS.items()
        if row.sender != "server"
    }
    assert taken == rows
