"""The HTTP port of a running server, and the measuring of its loop.

The packages behind the pages come with the extra
`server`; without them the server runs, and says once that it is not to be seen.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from namesrv.context import Namesrv
from namesrv.observability.loop_lag import LoopLag
from namesrv_remoting.aio.server import RemotingServer
from namesrv_runtime.log import event

if TYPE_CHECKING:
    from namesrv.observability.http import HttpListener

logger: Final = logging.getLogger(__name__)

_PACKAGES: Final = ("prometheus_client", "starlette", "uvicorn")


class Surface:
    """The HTTP port of a server, from `listen` to `close`."""

    def __init__(self, namesrv: Namesrv, server: RemotingServer) -> None:
        self._namesrv = namesrv
        self._server = server
        self._lag = LoopLag(namesrv.counters.lag)
        self._listener: HttpListener | None = None

    async def listen(self) -> list[tuple[str, int]]:
        """Show the server, if it is to be shown; the addresses that it is shown on.

        Raises:
            OSError: the address cannot be bound.
        """
        namesrv = self._namesrv
        address = namesrv.settings.http_address
        if address is None:
            return []
        missing = [name for name in _PACKAGES if not _is_installed(name)]
        if missing:
            hint = "pip install 'namesrv[server]'"
            event(logger, logging.WARNING, "http_is_off", missing=missing, install=hint)
            return []
        from namesrv.observability.http import HttpListener  # noqa: PLC0415  # optional
        from namesrv.observability.pages import application  # noqa: PLC0415

        self._listener = HttpListener(application(namesrv, self._server), namesrv.counters.http)
        addresses = await self._listener.listen(*address)
        self._lag.start()
        return addresses

    async def close(self) -> None:
        """End."""
        self._lag.stop()
        if self._listener is not None:
            await self._listener.close()


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # somebody has put None in its place
        return False
