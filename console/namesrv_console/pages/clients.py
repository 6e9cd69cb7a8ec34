"""Clients: all connections by role and protocol, with their age and their unsent bytes."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.clients import SORTS, ClientQuery, client_page


async def show(visit: Visit) -> Content:
    """One page of the connections."""
    query = visit.query
    wanted = ClientQuery(
        role=query.get("role", ""),
        protocol=query.get("protocol", ""),
        text=query.get("q", ""),
        sort=visit.choice("sort", SORTS),
        page=visit.number("page"),
    )
    known = await visit.console.responses.of("who am i", visit.native, lambda server: server.who_am_i())
    own = {server: found.peer for server, found in known.given.items()}
    found = client_page(visit.cluster, wanted, own)
    return {
        "wanted": wanted,
        "found": found,
        # The last connection of the chosen role or protocol may have closed.
        "roles": sorted({*found.roles, wanted.role} - {""}),
        "protocols": sorted({*found.protocols, wanted.protocol} - {""}),
        "kept": visit.kept,
    }


PAGE = Page(
    "clients",
    "/clients",
    "clients.title",
    show,
    parts=("clients",),
    fields=("role", "protocol", "q", "sort", "page"),
    group="servers",
    key="c",
)
