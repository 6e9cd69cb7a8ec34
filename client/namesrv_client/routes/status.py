"""The status of a route client: its servers, routes and watches; `dataclasses.asdict` makes it JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from namesrv_client.routes.route import Source


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one NameServer; times are wall-clock seconds since 1970."""

    address: str
    # connected: the server has answered over the current connection; unused: no response and no failure so far
    state: Literal["unused", "connected", "disconnected"]
    # time at which a connection last got its first response or ended; before that, when the server came into the list
    since: float
    # True for the server that gets requests first
    is_chosen: bool
    protocol: Literal["native", "rocketmq"] | None
    # boot id of the last response; None for Apache's server, which has no boot id
    boot_id: str | None
    last_response: float | None
    # the reason of the last failure of the server or of a request to it; kept when later requests succeed
    last_error: str | None
    # route requests, each for any number of topics, by result
    pulls: Mapping[str, int]
    # connections after the first one
    reconnects: int


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """The cached route of one topic."""

    topic: str
    source: Source
    # seconds since a server last confirmed the route
    age_seconds: float
    # the server's revision up to which all changes are known; None: the next poll requests the whole route
    revision: int | None
    # seconds since a server first reported that the topic does not exist; the last route is still served
    absent_seconds: float | None
    # True if the route is kept fresh; a route from disk is not kept fresh until the application uses it
    is_in_use: bool


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A watch that a server holds until one of its topics changes."""

    server: str
    # wall-clock seconds
    since: float
    topics: int


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The state of a route client at one moment."""

    client_name: str
    # True between entering and leaving the client's context
    is_started: bool
    # True if a server answered the last call for routes; refused calls and failed watches change nothing
    is_ready: bool
    # the error of the last read of the list of NameServers
    name_servers_error: str | None = None
    # servers in the order in which they get requests
    servers: tuple[ServerStatus, ...] = ()
    routes: tuple[RouteStatus, ...] = ()
    watches: tuple[WatchStatus, ...] = ()
    # number of times that another server answered because the chosen one failed or was silent
    failovers: int = 0
    # route requests that no server answered, or that were only refused
    unanswered: int = 0
    # number of route changes
    changes: int = 0
