"""KV: one namespace of the key-value configuration on each server."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.tables import value_rows
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG


async def show(visit: Visit) -> Content:
    """The namespace that the query names; by default that of ordered topics."""
    namespace = visit.query.get("namespace") or ORDER_TOPIC_CONFIG
    answers = await visit.console.responses.of(
        ("kv", namespace), visit.reachable, lambda server: server.kv_list(namespace)
    )
    rows = value_rows({server: values or {} for server, values in answers.given.items()})
    return {
        "namespace": namespace,
        "rows": rows,
        "views": [visit.cluster.server(address) for address in answers.given],
        "problems": answers.problems(),
    }


PAGE = Page("kv", "/kv", "kv.title", show, parts=("kv",), group="servers", key="k")
