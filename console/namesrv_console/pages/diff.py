"""Diff: disagreements of the servers, when they began, and which are expected; also as JSON."""

from collections.abc import Sequence

from starlette.responses import JSONResponse

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.differences import Disagreement, among, grouped, same_servers

_SHOWN_GROUPS = 200


def _compared(visit: Visit) -> tuple[list[str], list[Disagreement]]:
    """The servers that the query names, by default all, and the disagreements among them."""
    every = [view.address for view in visit.cluster.servers]
    servers = [server for server in every if visit.query.get(f"with:{server}")] or every
    found = visit.console.compared.disagreements(visit.cluster)
    return servers, list(found) if servers == every else among(found, servers)


async def show(visit: Visit) -> Content:
    """Groups of equal differences, unexpected ones first."""
    servers, found = _compared(visit)
    groups = grouped(found)
    return {
        "servers": servers,
        "count": len(found),
        "same_servers": same_servers(map(visit.cluster.server, servers)),
        "unexpected": sum(one.reason is None for one in found),
        "groups": groups[:_SHOWN_GROUPS],
        "more": len(groups) - len(groups[:_SHOWN_GROUPS]),
        "silent": _silent(visit, servers),
        "kept": {f"with:{server}": 1 for server in servers} if len(servers) < len(visit.cluster.servers) else {},
    }


def _silent(visit: Visit, servers: Sequence[str]) -> list[tuple[str, str]]:
    """Servers that cannot be compared, each with the reason."""
    silent = []
    for server in servers:
        view = visit.cluster.server(server)
        if view.is_compared:
            continue
        refused = [view.refused[what] for what in ("brokers", "routes") if what in view.refused]
        reported = "; ".join(refused) or visit.t("diff.topics_not_read")
        silent.append((server, reported if view.is_reachable else view.error or ""))
    return silent


async def export(visit: Visit) -> Content:
    """The disagreements as JSON, for programs."""
    servers, found = _compared(visit)
    now, views = visit.console.clock.monotonic(), [*map(visit.cluster.server, servers)]
    return JSONResponse(
        {
            "as_of": round(visit.wall, 3),
            "servers": [
                {
                    "server": view.address,
                    "state": view.state,
                    "error": view.error,
                    "brokers": len(view.brokers),
                    "topics": len(view.topic_report.topics),
                }
                for view in views
            ],
            "same": not found and not _silent(visit, servers) and not same_servers(views),
            "differences": [one.document(now) for one in found],
        },
        headers={"content-disposition": 'attachment; filename="diff.json"', "cache-control": "no-store"},
    )


PAGE = Page("diff", "/diff", "diff.title", show, parts=("differences",), fields=("with:",), group="servers", key="d")
EXPORT = Page("diff-json", "/diff.json", "diff.title", export, fields=("with:",), is_live=False)
