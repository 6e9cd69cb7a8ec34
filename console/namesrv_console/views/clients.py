"""Who is connected to the servers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from namesrv_console.state import Cluster, ServerView
from namesrv_remoting.bodies.extensions import Connection


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One connection to one server; the times are the server's, and None where it does not tell."""

    server: str
    connection: Connection
    role: str
    protocol: str
    # how long it has been open
    seconds: float | None
    # on the console's clock: when something was last read from it
    heard_at: float | None

    @property
    def waiting_bytes(self) -> int:
        """What the client has yet to read."""
        return self.connection.unsent_bytes or 0


@dataclass(frozen=True, slots=True)
class ClientPage:
    """The connections that are shown, and how many there are of each role and protocol."""

    rows: Sequence[ClientRow]
    count: int
    page: int
    pages: int
    roles: Mapping[str, int]
    protocols: Mapping[str, int]


PAGE_ROWS: Final = 100
# a connection over which nothing has come yet
SILENT: Final = "silent"
_SORTS: Final[Mapping[str, Callable[[ClientRow], Any]]] = {
    "peer": lambda row: (row.connection.peer, row.server),
    "server": lambda row: row.server,
    "role": lambda row: row.role,
    "protocol": lambda row: row.protocol,
    "age": lambda row: -(row.seconds or 0.0),
    "heard": lambda row: row.heard_at or 0.0,
    "waiting": lambda row: -row.waiting_bytes,
}
SORTS: Final = tuple(_SORTS)


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """Which connections somebody wants to see: of a role, a protocol, with this in their address or account."""

    role: str = ""
    protocol: str = ""
    text: str = ""
    sort: str = "peer"
    page: int = 1


def client_page(cluster: Cluster, query: ClientQuery) -> ClientPage:
    """The connections that are asked for. Raises KeyError for a sort that there is not."""
    key, wanted = _SORTS[query.sort], query.text.strip().casefold()
    every = [row for view in cluster.servers for row in _rows(view)]
    found = [
        row
        for row in every
        if query.role in ("", row.role)
        and query.protocol in ("", row.protocol)
        and wanted in f"{row.connection.peer} {row.connection.proxied or ''} {row.connection.account or ''}".casefold()
    ]
    found.sort(key=key)
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(max(1, query.page), pages)
    return ClientPage(
        found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        len(found),
        page,
        pages,
        dict(sorted(Counter(row.role for row in every).items())),
        dict(sorted(Counter(row.protocol for row in every).items())),
    )


def _rows(view: ServerView) -> list[ClientRow]:
    info = view.info
    # the server's own clock: how long a connection is open is not for another clock to say
    wall_ms = None if info is None or info.started_ms is None else info.started_ms + info.uptime_seconds * 1000
    return [
        ClientRow(
            view.address,
            one,
            one.role or SILENT,
            one.protocol or "",
            None if wall_ms is None or one.since_ms is None else max(0.0, (wall_ms - one.since_ms) / 1000),
            None if one.last_request_seconds is None else view.connections_at - one.last_request_seconds,
        )
        for one in view.connections or ()
    ]
