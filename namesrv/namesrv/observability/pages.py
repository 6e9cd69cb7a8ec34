"""What is on the pages /livez, /readyz and /metrics?"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from namesrv.context import Namesrv
from namesrv.observability.checks import Check, liveness, readiness, report
from namesrv.observability.exposition import CONTENT_TYPE, exposition
from namesrv.observability.http_connection import Response, plain
from namesrv.observability.http_listener import Page
from namesrv_remoting.aio.server import RemotingServer


def pages(namesrv: Namesrv, server: RemotingServer) -> Mapping[str, Page]:
    """The pages by path."""
    # of several scrapes at once each would take its part of every turn of the loop
    scraping = asyncio.Lock()

    async def livez(query: str) -> Response:
        return _checked(liveness(namesrv), query)

    async def readyz(query: str) -> Response:
        return _checked(readiness(namesrv), query)

    async def metrics(_: str) -> Response:
        async with scraping:
            return Response(HTTPStatus.OK, await exposition(namesrv, server), CONTENT_TYPE)

    return {"/livez": livez, "/readyz": readyz, "/metrics": metrics}


def _checked(checks: list[Check], query: str) -> Response:
    is_ok = all(check.is_ok for check in checks)
    is_verbose = any(part.partition("=")[0] == "verbose" for part in query.split("&"))
    return plain(HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE, report(checks, verbose=is_verbose))
