"""What makes a running server visible: when is what counted, and where is it shown?

Without an address for HTTP nothing is counted that costs anything. The packages behind the pages come with the extra
`server`; without them the server runs, and says once that it is not to be seen.
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from namesrv.context import Namesrv
from namesrv.observability.loop_lag import LoopLag
from namesrv.processors import roles
from namesrv.routeinfo.records import Effect
from namesrv_runtime.log import event

if TYPE_CHECKING:
    from namesrv.observability.http_listener import HttpListener

logger: Final = logging.getLogger(__name__)

_PACKAGES: Final = ("h11", "prometheus_client")


class Surface:
    """The HTTP port of a server, from `listen` to `close`."""

    def __init__(self, namesrv: Namesrv, observers: list[Callable[[Effect], None]]) -> None:
        self._namesrv = namesrv
        # who is told of every effect but heartbeats
        self._observers = observers
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
        from namesrv.observability.http_listener import HttpListener  # noqa: PLC0415  # optional
        from namesrv.observability.pages import pages  # noqa: PLC0415

        self._listener = HttpListener(pages(namesrv), namesrv.spawn, namesrv.counters.http)
        addresses = await self._listener.listen(*address)
        self._count()
        return addresses

    def _count(self) -> None:
        namesrv = self._namesrv
        of_code = roles(namesrv)
        answered = namesrv.counters.request_answered
        namesrv.server.dispatcher.timed = lambda code, seconds: answered(of_code.get(code, "unknown"), seconds)
        self._observers.append(namesrv.counters)
        namesrv.manager.on_late_heartbeat = namesrv.counters.late_heartbeat
        self._lag.start()

    def close(self) -> None:
        """End."""
        self._lag.stop()
        if self._listener is not None:
            self._listener.close()


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # somebody has put None in its place
        return False
