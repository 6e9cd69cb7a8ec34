"""One console: its settings, its servers, their last responses, and the open pages."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from namesrv_client.ctl.nameserver import NameServer
from namesrv_console.access.trail import Trail
from namesrv_console.acknowledged import Acknowledgements
from namesrv_console.catalogue import Catalogue
from namesrv_console.compared import Compared
from namesrv_console.health import Health
from namesrv_console.past.asking import Past
from namesrv_console.poller import ANSWER_SECONDS, Observed, Poller
from namesrv_console.rates import Rates
from namesrv_console.responses import SharedResponses
from namesrv_console.settings import ConsoleSettings
from namesrv_console.state import Cluster
from namesrv_runtime.clock import Clock, SystemClock

# A NameServer accepts no longer name or value.
MAX_CHARACTERS: Final = 32 * 1024
_MOST_DIGITS: Final = 6
# The wall clock was set, or the machine was suspended, if the two clocks differ by more than this from before.
_WALL_STEP_SECONDS: Final = 1.0


class Console:
    """The data that pages are made of; `run` keeps the data up to date."""

    def __init__(self, settings: ConsoleSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.observed = Observed(settings.servers)
        self.past = Past(settings.logs)
        self.compared = Compared(self.observed, self.clock)
        directory = settings.access.audit_log_dir
        self.health = Health(self.observed, self.compared, self.clock, Acknowledgements(directory, settings.servers))
        # Audit trail of sign-ins, changes and refusals; None without a directory, which `cli` sets if users sign in.
        self.trail = None if directory is None else Trail(directory, self.clock)
        credentials, tls = settings.signing.credentials(self.clock.wall), settings.tls.client_tls
        self.rates = Rates(self.observed, self.clock)
        # Connections to the servers, for requests of pages and of the poller.
        self.servers = {
            address: NameServer(
                address, timeout_seconds=ANSWER_SECONDS, clock=self.clock, credentials=credentials, tls=tls
            )
            for address in settings.servers
        }
        self.responses = SharedResponses(self.servers, self.observed, self.clock)
        # Offset of the wall clock to the monotonic clock, kept while it changes little: times on a screen do not move.
        self._wall_minus_monotonic = self.clock.wall() - self.clock.monotonic()

    def __repr__(self) -> str:
        return f"<Console [{self.observed}]>"

    def moment_ms(self, moment: float) -> int:
        """A moment of the console's monotonic clock in milliseconds since 1970."""
        ahead = self.clock.wall() - self.clock.monotonic()
        if abs(ahead - self._wall_minus_monotonic) > _WALL_STEP_SECONDS:
            self._wall_minus_monotonic = ahead
        return round((moment + self._wall_minus_monotonic) * 1000)

    def acted(self) -> None:
        """Have open pages show the values after an action."""
        self.responses.forget()
        self.observed.renew()

    async def run(self) -> None:
        """Poll the servers until cancelled."""
        if self.trail is not None:
            self.trail.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Poller(list(self.servers.values()), self.observed, self.clock).run())
                tasks.create_task(self.compared.run())
                tasks.create_task(self.health.run())
                tasks.create_task(self.rates.run())
                tasks.create_task(self.responses.run())
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
    """One request of one page: its query, its language, and the cluster as known at this moment."""

    console: Console
    cluster: Cluster
    query: Mapping[str, str]
    catalogue: Catalogue
    # Time on the console's monotonic clock. None for live parts: the browser computes ages itself, so a part changes
    # only when something but its ages does.
    now: float | None

    def number(self, name: str) -> int:
        """A small whole number of the query; 1 if it is absent or invalid."""
        text = self.query.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 1

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of several words, by default the first; an invalid value counts as absent."""
        text = self.query.get(name, "")
        return text if text in choices else choices[0]

    @property
    def kept(self) -> dict[str, str]:
        """The parts of the query that links within a list keep: all but the number of its page, and cookies."""
        return {name: value for name, value in self.query.items() if name not in {"page", "stars"} and value}

    @property
    def wall(self) -> float:
        """Seconds since 1970, for people."""
        return self.console.clock.wall()

    @property
    def reachable(self) -> list[str]:
        """Addresses of the reachable servers; a request to another one would delay the page."""
        return [view.address for view in self.cluster.servers if view.is_reachable]

    @property
    def unreachable(self) -> list[str]:
        """A line about each server that is not reachable, so that a page names what it does not show."""
        return [
            f"{view.name}: {view.error or self.t(f'state.{view.state}')}"
            for view in self.cluster.servers
            if not view.is_reachable
        ]

    @property
    def native(self) -> list[str]:
        """Addresses of the reachable servers that speak our protocol."""
        return [view.address for view in self.cluster.servers if view.is_reachable and view.info is not None]

    @property
    def t(self) -> Callable[..., str]:
        """Returns the text of a key in the visit's language."""
        return self.catalogue.text


# The values for a page's template, or a complete response.
Content = Mapping[str, Any] | Response


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `templates/NAME.html`, filled with the values of the handler."""

    name: str
    path: str
    # Key of the title in the catalogues.
    title_key: str
    handler: Callable[[Visit], Awaitable[Content]]
    # The blocks of the template that are sent again when they change, each of one element whose id is the block's name.
    # Within a block, each row after a line `<!--row-->` begins with an element that has an id, and is sent alone; the
    # last row ends with such a line.
    parts: tuple[str, ...] = ()
    # Names of the query; a name with a colon at its end stands for one name for each server. Others are ignored.
    fields: tuple[str, ...] = ()
    # Most characters of a value in the query.
    max_characters: int = 1000
    # Names of cookies that count as a part of the query.
    cookies: tuple[str, ...] = ()
    # Group of the menu to which the page belongs; empty for files and the search page.
    group: str = ""
    # Key that opens the page after `g`. None: the menu does not list the page.
    key: str | None = None
    # False: the response is a file, and the page has no template.
    is_live: bool = True
