"""One console: its settings, the servers that it asks, what they said, and the pages that are open."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from namesrv_client.ctl.nameserver import NameServer
from namesrv_console.access.trail import Trail
from namesrv_console.asked import Asked
from namesrv_console.catalogue import Catalogue
from namesrv_console.compared import Compared
from namesrv_console.past.asking import Past
from namesrv_console.poller import ANSWER_SECONDS, Observed, Poller
from namesrv_console.settings import ConsoleSettings
from namesrv_console.state import Cluster
from namesrv_runtime.clock import Clock, SystemClock


class Console:
    """What pages are made of; `run` keeps it up to date."""

    def __init__(self, settings: ConsoleSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.observed = Observed(settings.servers)
        self.past = Past(settings.logs)
        self.compared = Compared(self.observed, self.clock)
        # who signed in and who changed what; None: nobody does either
        directory = settings.access.audit_log_dir
        self.trail = None if directory is None else Trail(directory, self.clock)
        credentials, tls = settings.signing.credentials(self.clock.wall), settings.tls.client_tls
        # for what the poller does not ask
        self.servers = {
            address: NameServer(
                address, timeout_seconds=ANSWER_SECONDS, clock=self.clock, credentials=credentials, tls=tls
            )
            for address in settings.servers
        }
        self.asked = Asked(self.servers, self.clock)

    def __repr__(self) -> str:
        return f"<Console [{self.observed}]>"

    async def run(self) -> None:
        """Ask the servers until cancelled."""
        if self.trail is not None:
            self.trail.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Poller(list(self.servers.values()), self.observed, self.clock).run())
                tasks.create_task(self.compared.run())
                if self.trail is not None:
                    tasks.create_task(self.trail.run())
        finally:
            if self.trail is not None:
                await self.trail.stop()
            for server in self.servers.values():
                await server.close()
            await self.past.close()


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at one page: what is asked for, in which language, and what is known at this moment."""

    console: Console
    cluster: Cluster
    query: Mapping[str, str]
    catalogue: Catalogue
    # On the console's monotonic clock. None: the browser says how old things are, and a page stays as it is until more
    # than its ages changes.
    now: float | None

    @property
    def wall(self) -> float:
        """Seconds since 1970, for people."""
        return self.console.clock.wall()

    @property
    def reachable(self) -> list[str]:
        """The servers that answer: one that does not would let a page wait."""
        return [view.address for view in self.cluster.servers if view.is_reachable]

    @property
    def t(self) -> Callable[..., str]:
        """Words by their key."""
        return self.catalogue.text


# what a page's template is given; or another answer altogether
Content = Mapping[str, Any] | Response


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `templates/NAME.html`, filled with what the handler says."""

    name: str
    path: str
    # of its title, in the catalogues
    title_key: str
    handler: Callable[[Visit], Awaitable[Content]]
    # The blocks of the template that are sent again when they change, each of one element whose id is the block's name.
    # Within one, each row after a line `<!--row-->` begins with an element that has an id, and is sent alone; the last
    # row ends with such a line.
    parts: tuple[str, ...] = ()
    # what the browser keeps that is a part of the query
    cookies: tuple[str, ...] = ()
    in_menu: bool = True
    # False: it answers with a file, and has no template
    is_live: bool = True
