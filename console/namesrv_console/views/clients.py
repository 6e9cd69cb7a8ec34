"""The connections of the servers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_console.views.paging import Paged, on_page
from namesrv_remoting.bodies.extensions import Connection


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One connection to one server; None stands for a time that the server does not report."""

    server: str
    connection: Connection
    role: str
    protocol: str
    # How long the connection has been open.
    seconds: float | None
    # Time of the last request on the connection, on the console's clock.
    last_request_at: float | None
    # The brokers that are registered over the connection.
    brokers: Sequence[BrokerKey] = ()
    # True: the connection is this console's.
    is_own: bool = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the client has not read yet."""
        return self.connection.unsent_bytes or 0


@dataclass(frozen=True, slots=True)
class ClientPage(Paged[ClientRow]):
    """The connections that are shown, and the number of connections by role and by protocol."""

    roles: Mapping[str, int]
    protocols: Mapping[str, int]
    # Names of the servers whose connections are unknown.
    unknown: Sequence[str]


# Role of a connection without a request yet.
SILENT: Final = "silent"
# A server's view and a connection to the server.
_Pair = tuple[ServerView, Connection]
_SORTS: Final[Mapping[str, Callable[[_Pair], Any]]] = {
    "peer": lambda it: (it[1].peer, it[0].address),
    "server": lambda it: it[0].address,
    "role": lambda it: it[1].role or SILENT,
    "protocol": lambda it: it[1].protocol or "",
    # The oldest connections first, like the largest; since_ms is on the server's clock.
    "age": lambda it: it[1].since_ms or 0,
    "last_request": lambda it: -(it[1].last_request_seconds or 0.0),
    "waiting": lambda it: -(it[1].unsent_bytes or 0),
}
SORTS: Final = tuple(_SORTS)


@dataclass(frozen=True, slots=True)
class ClientQuery:
    """Filter and order of the connections: a role, a protocol, a text in the address or account."""

    role: str = ""
    protocol: str = ""
    text: str = ""
    sort: str = "peer"
    page: int = 1


def client_page(cluster: Cluster, query: ClientQuery, own: Mapping[str, str] = MappingProxyType({})) -> ClientPage:
    """The connections that match a query; `own` has the console's peer address on each server.

    Raises:
        KeyError: the sort is unknown.
    """
    key, wanted = _SORTS[query.sort], query.text.strip().casefold()
    every = [(view, one) for view in cluster.servers for one in view.connections or ()]
    found = [
        (view, one)
        for view, one in every
        if query.role in ("", one.role or SILENT)
        and query.protocol in ("", one.protocol)
        and (not wanted or wanted in f"{one.peer} {one.proxied or ''} {one.account or ''}".casefold())
    ]
    found.sort(key=key)
    shown = on_page(found, query.page)
    # There may be tens of thousands of connections: only shown ones become rows.
    return ClientPage(
        [_row(view, one, own.get(view.address)) for view, one in shown.rows],
        shown.count,
        shown.page,
        shown.pages,
        dict(sorted(Counter(one.role or SILENT for _, one in every).items())),
        dict(sorted(Counter(one.protocol or "" for _, one in every).items())),
        [view.name for view in cluster.servers if view.connections is None],
    )


def _row(view: ServerView, one: Connection, own_peer: str | None) -> ClientRow:
    return ClientRow(
        view.address,
        one,
        one.role or SILENT,
        one.protocol or "",
        one.open_seconds(None if view.info is None else view.info.wall_ms),
        view.last_request_at(one),
        [key for key, seen in view.brokers.items() if seen.live.connection == one.id],
        one.peer == own_peer,
    )
