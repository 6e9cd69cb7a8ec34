"""Running a console: the poller and the web server, until Ctrl-C or SIGTERM."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn

from namesrv_console.app import create_app
from namesrv_console.console import Console
from namesrv_console.live import LivePages
from namesrv_console.settings import ConsoleSettings
from namesrv_console.state import ServerView
from namesrv_runtime.http_connection import HttpConnection, HttpConnections, HttpLimits

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# 500 tabs, each with a stream and one more request; forms and streams have deadlines of their own.
LIMITS: Final = HttpLimits(max_connections=1_000, request_seconds=10.0, idle_seconds=5.0, write_seconds=60.0)


class _Server(uvicorn.Server):
    """A uvicorn server that ends the event streams first, since uvicorn waits for all responses to end."""

    def __init__(self, config: uvicorn.Config, pages: LivePages) -> None:
        super().__init__(config)
        self._pages = pages

    @contextmanager
    def ending_at_signals(self) -> Iterator[None]:
        """Context in which either signal shuts the server down, also before it serves.

        uvicorn's own handler would raise the signal again afterwards, and the exit code would be a failure's.
        """
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `ending_at_signals`."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the rest."""
        self._pages.close()
        await super().shutdown(sockets)


async def serve(
    settings: ConsoleSettings,
    listening: socket.socket,
    *,
    announce: Callable[[], None],
    report: Callable[[str], None],
) -> None:
    """Serve pages on a listening socket until a signal.

    `announce` is called once signals are handled; `report` receives a text for each server that is unreachable at the
    start.
    """
    console = Console(settings)
    app = create_app(console)
    tls = settings.access.tls_context()
    config = uvicorn.Config(
        app,
        http=partial(HttpConnection, open_connections=HttpConnections(LIMITS)),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    server = _Server(config, app.state.live)
    with server.ending_at_signals():
        announce()
        await _run(server, console, listening, report)


async def _run(server: _Server, console: Console, listening: socket.socket, report: Callable[[str], None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        polling = tasks.create_task(console.run())
        reporting = tasks.create_task(_report_unreachable(console, report))
        await server.serve(sockets=[listening])
        polling.cancel()
        reporting.cancel()


async def _report_unreachable(console: Console, report: Callable[[str], None]) -> None:
    """Report each server whose first request fails, once; pages show later failures."""
    observed, awaited = console.observed, set(console.settings.servers)
    while awaited:
        revision = observed.cluster.revision
        for view in observed.cluster.servers:
            if view.address in awaited and view.is_reachable is not None:
                awaited.remove(view.address)
                if not view.is_reachable:
                    report(f"{_trouble(view)}; trying again every second")
        await observed.changed_since(revision)


def _trouble(view: ServerView) -> str:
    """The reason that a server is unreachable; most reasons contain its address."""
    why = str(view.error)
    return why if view.address in why else f"{view.address} is not reachable: {why}"
