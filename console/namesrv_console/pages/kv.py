"""KV: the namespaces of the key-value configuration, and one of them on each server."""

import asyncio

from namesrv_console.console import MAX_CHARACTERS, Content, Page, Visit
from namesrv_console.views.tables import value_rows
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG


async def show(visit: Visit) -> Content:
    """The namespace that the query names; by default that of ordered topics."""
    namespace = visit.query.get("namespace") or ORDER_TOPIC_CONFIG
    responses = visit.console.responses
    answers, namespaces = await asyncio.gather(
        responses.of(("kv", namespace), visit.reachable, lambda server: server.kv_list(namespace)),
        responses.of("kv namespaces", visit.native, lambda server: server.kv_namespaces()),
    )
    rows = value_rows({server: values or {} for server, values in answers.given.items()})
    count = len(visit.cluster.servers)
    return {
        "namespace": namespace,
        # Apache's server does not list its namespaces.
        "knows_namespaces": len(namespaces.given) == count,
        "knows_keys": len(answers.given) == count,
        "namespaces": sorted({name for found in namespaces.given.values() for name in found}),
        "rows": rows,
        "views": [visit.cluster.server(address) for address in answers.given],
        "problems": [*visit.unreachable, *answers.problems(), *namespaces.problems()],
    }


PAGE = Page(
    "kv",
    "/kv",
    "kv.title",
    show,
    parts=("namespaces", "kv"),
    fields=("namespace",),
    max_characters=MAX_CHARACTERS,
    group="servers",
    key="k",
)
