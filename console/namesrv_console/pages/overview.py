"""Overview: the servers, their disagreements, a heat map of the brokers, the last events."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.differences import grouped, same_servers
from namesrv_console.views.events import last_events
from namesrv_console.views.heat import fewer_groups, heat_map
from namesrv_console.views.problems import most_urgent
from namesrv_console.views.recent import recent_picture

_SHOWN_GROUPS = 8
# A server that lacks all brokers of a large cluster is a problem for each.
_SHOWN_PROBLEMS = 100
# Heat maps of more cells than this have small cells, so that they fit the screen.
_MOST_LARGE_CELLS = 300
# The heat map of so many groups on three servers is 300 KB of HTML; the list of brokers has the others.
_MOST_GROUPS = 1000


async def show(visit: Visit) -> Content:
    """The whole page; the overview has no query."""
    cluster = visit.cluster
    found = visit.console.compared.disagreements(cluster)
    groups = grouped(found)
    health = visit.console.health.report(cluster)
    problems = most_urgent(health.problems, health.acknowledged, _SHOWN_PROBLEMS)
    heat, more_heat = fewer_groups(heat_map(cluster, health.missing, found, visit.now), _MOST_GROUPS)
    return {
        "signs_in": visit.console.settings.access.requires_sign_in,
        "problems": problems,
        "more_problems": len(health.problems) - len(problems),
        "unexpected": sum(one.reason is None for one in found),
        "count": len(found),
        "same_servers": same_servers(cluster.servers),
        "groups": groups[:_SHOWN_GROUPS],
        "more": len(groups) - len(groups[:_SHOWN_GROUPS]),
        "heat": heat,
        "more_heat": more_heat,
        "recent": recent_picture(cluster, visit.wall, visit.console.moment_ms),
        "is_dense": sum(len(view.brokers) for view in cluster.servers) > _MOST_LARGE_CELLS,
        "events": last_events(cluster, visit.console.moment_ms),
    }


PAGE = Page(
    "overview",
    "/",
    "overview.title",
    show,
    parts=("problems", "heat", "recent", "servers", "agreement", "events"),
    group="overview",
    key="o",
)
