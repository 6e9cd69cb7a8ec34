"""Every handler fits the row of its request in the table of requests."""

from typing import get_type_hints

from namesrv.processors import typed_handlers
from namesrv_remoting.requests import REQUESTS
from tests.support.in_process import InProcess


def test_handlers_take_what_their_rows_have(server: InProcess) -> None:
    """Every request but the server's own has a handler, whose parameters are the request, its header and its body."""
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
