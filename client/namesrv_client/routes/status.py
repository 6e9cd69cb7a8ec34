"""What a route client says of itself: its servers, its routes, its watches. `dataclasses.asdict` makes it JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from namesrv_client.routes.route import Source


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One NameServer; times are wall-clock seconds since 1970."""

    address: str
    # connected: it has answered over the connection that there is; unused: it was never asked
    state: Literal["unused", "connected", "disconnected"]
    # since when the state is what it is
    since: float
    # the one that is asked first
    is_chosen: bool
    protocol: Literal["native", "rocketmq"] | None
    # which run of it answered last; None of one that does not say
    boot_id: str | None
    last_answer: float | None
    # why it, or a question to it, failed the last time; kept when it is well again
    last_error: str | None
    # questions about routes, for however many topics, by how they ended
    pulls: Mapping[str, int]
    # connections after the first one
    reconnects: int


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """What is known of one topic."""

    topic: str
    source: Source
    # since a server last confirmed it
    age_seconds: float
    # all changes of the server's run up to this one are known; None: the next poll asks for the whole route
    revision: int | None
    # since when a server says that the topic does not exist; the last route is served all the same
    absent_seconds: float | None
    # kept fresh; one that was read from disk is not before somebody asks for it
    is_in_use: bool


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A question that a server holds until something changes."""

    server: str
    # wall-clock seconds
    since: float
    topics: int


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """A route client at one moment."""

    client_name: str
    # entered, and not left yet
    is_started: bool
    # the last question about routes was answered by a server
    is_ready: bool
    # why the list of NameServers could not be read the last time
    name_servers_error: str | None = None
    # in the order in which they are asked
    servers: tuple[ServerStatus, ...] = ()
    routes: tuple[RouteStatus, ...] = ()
    watches: tuple[WatchStatus, ...] = ()
    # times that another server became the chosen one
    failovers: int = 0
    # questions that no server answered
    unanswered: int = 0
    # of routes
    changes: int = 0
