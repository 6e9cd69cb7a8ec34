"""Who may ask over HTTP, and which page answers?"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final

import h11

from namesrv.observability.http_connection import VERSIONS, HttpConnection, HttpLimits, Response, plain

logger: Final = logging.getLogger(__name__)

_BACKLOG: Final = 64
_METHODS: Final = (b"GET", b"HEAD")

# what a page gets is the query, without the question mark
Page = Callable[[str], Awaitable[Response]]


class HttpListener:
    """Listens, and owns all accepted connections."""

    def __init__(
        self,
        pages: Mapping[str, Page],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        counts: Counter[tuple[str, int]],
        limits: HttpLimits = HttpLimits(),  # noqa: B008 - a frozen value
    ) -> None:
        self.limits = limits
        self.spawn = spawn
        self._pages = pages
        # (path, status) -> answers; unknown paths are counted together
        self._counts = counts
        # the one that has been doing nothing for longest comes first
        self._connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<HttpListener [{len(self._connections)} connections | {', '.join(self._pages)}]>"

    # -- life ---------------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> list[tuple[str, int]]:
        """Start to accept; the addresses that it listens on.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), host, port, backlog=_BACKLOG)
        names = [listening.getsockname() for listening in self._server.sockets]
        return [(str(name[0]), int(name[1])) for name in names]

    def close(self) -> None:
        """Let nobody in any more, and end what is left."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()

    # -- what connections call ----------------------------------------------------------------------------------------

    def connection_opened(self, connection: HttpConnection) -> None:
        """Let a peer in, if need be in the place of one that waits."""
        if self._server is None:
            connection.abort()
            return
        if len(self._connections) >= self.limits.max_connections:
            longest = next((known for known in self._connections if known.is_waiting), connection)
            self._connections.pop(longest, None)
            longest.abort()
            if longest is connection:
                return
        self._connections[connection] = None

    def connection_used(self, connection: HttpConnection) -> None:
        """It was of use just now: others wait for longer."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None

    def connection_closed(self, connection: HttpConnection) -> None:
        """Forget a peer."""
        self._connections.pop(connection, None)

    def count(self, path: str, status: HTTPStatus) -> None:
        """Count an answer."""
        self._counts[path if path in self._pages else "other", status.value] += 1

    async def respond(self, request: h11.Request) -> Response:
        """The answer to a request."""
        path, _, query = request.target.decode("latin-1").partition("?")
        if request.http_version in VERSIONS:
            response = await self._respond(request.method, path, query)
        else:
            response = plain(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and HTTP/1.1\n")
        self.count(path, response.status)
        return response

    async def _respond(self, method: bytes, path: str, query: str) -> Response:
        page = self._pages.get(path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, f"not found; there are {', '.join(self._pages)}\n")
        if method not in _METHODS:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", ("Allow", "GET, HEAD"))
        try:
            return await page(query)
        except Exception:
            # who watches a server must not be able to end it
            logger.exception("page %s failed", path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the server's log has the rest\n")
