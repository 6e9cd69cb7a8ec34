"""KV: the namespaces of the key-value configuration, and one of them on each server."""

import asyncio

from namesrv_console.console import MAX_CHARACTERS, Content, Page, Visit
from namesrv_console.views.paging import on_page
from namesrv_console.views.tables import value_rows
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG


async def show(visit: Visit) -> Content:
    """The namespace that the query names; by default that of ordered topics."""
    namespace = visit.query.get("namespace") or ORDER_TOPIC_CONFIG
    shared = visit.console.responses
    values, namespaces = await asyncio.gather(
        shared.of(("kv", namespace), visit.reachable, lambda server: server.kv_list(namespace)),
        shared.of("kv namespaces", visit.native, lambda server: server.kv_namespaces()),
    )
    rows = value_rows({server: by_key or {} for server, by_key in values.given.items()})
    text = visit.query.get("q", "")
    wanted = text.strip().casefold()
    # Keys that differ are on the first page.
    found = sorted((row for row in rows if wanted in row.key.casefold()), key=lambda row: not row.drifts)
    count = len(visit.cluster.servers)
    return {
        "namespace": namespace,
        # Apache's server does not list its namespaces.
        "knows_namespaces": len(namespaces.given) == count,
        "knows_keys": len(values.given) == count,
        "namespaces": sorted({name for found in namespaces.given.values() for name in found}),
        "has_keys": bool(rows),
        "text": text,
        "found": on_page(found, visit.number("page")),
        "views": [visit.cluster.server(address) for address in values.given],
        "problems": [*visit.unreachable, *values.failures(), *namespaces.failures()],
    }


PAGE = Page(
    "kv",
    "/kv",
    "kv.title",
    show,
    parts=("namespaces", "kv"),
    fields=("namespace", "q", "page"),
    max_characters=MAX_CHARACTERS,
    group="servers",
    key="k",
)
