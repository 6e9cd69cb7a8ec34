"""Overview: the servers, their disagreements, the brokers by age, the last events."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.differences import grouped
from namesrv_console.views.overview import compared, last_events, oldest_brokers
from namesrv_console.views.problems import reports_brokers

_SHOWN_GROUPS = 8


async def show(visit: Visit) -> Content:
    """The whole page; the overview has no query."""
    cluster = visit.cluster
    found = visit.console.compared.disagreements(cluster)
    groups = sorted(grouped(found), key=lambda group: group.reason is not None)
    return {
        "signs_in": visit.console.settings.access.requires_sign_in,
        "since_ms": visit.console.compared.moment_ms,
        "compared": compared(cluster),
        "unexpected": sum(one.reason is None for one in found),
        "count": len(found),
        "groups": groups[:_SHOWN_GROUPS],
        "more": len(groups) - len(groups[:_SHOWN_GROUPS]),
        "reporting": sum(map(reports_brokers, cluster.servers)),
        "oldest": oldest_brokers(cluster),
        "events": last_events(cluster),
    }


PAGE = Page("overview", "/", "overview.title", show, parts=("problems", "servers", "agreement", "oldest", "events"))
