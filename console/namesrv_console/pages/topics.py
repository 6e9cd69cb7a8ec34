"""Topics: all of them, or those that match the query; the browser stores the stars."""

from urllib.parse import unquote

from namesrv_client.ctl.comparison import PRESENT
from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.topics import SHOWS, SORTS, TopicQuery, topic_page

_MAX_STARS = 100


def _query(visit: Visit) -> TopicQuery:
    """The query of the list, from the URL and the stars."""
    query = visit.query
    stars = [unquote(name) for name in query.get("stars", "").split(",", _MAX_STARS)[:_MAX_STARS] if name]
    return TopicQuery(
        text=query.get("q", ""),
        show=visit.choice("show", SHOWS),
        shows_system=query.get("system") == "1",
        sort=visit.choice("sort", SORTS),
        is_descending=query.get("descending") == "1",
        page=visit.number("page"),
        starred=frozenset(stars),
    )


async def show(visit: Visit) -> Content:
    """One page of the list."""
    query, table = _query(visit), visit.console.compared.topics(visit.cluster)
    topics = [one for one in visit.console.compared.disagreements(visit.cluster) if one.difference.kind == "topic"]
    return {
        "wanted": query,
        "found": topic_page(table, query),
        "reporting": len(table.servers),
        "count": len(table.rows),
        "differing": table.differing,
        "unexpected": {one.difference.name for one in topics if one.reason is None},
        # Name of a topic that servers lack -> the servers where this is expected.
        "awaited_on": {one.difference.name: one.expected_on for one in topics if one.difference.fact == PRESENT},
        "shows": SHOWS,
        "kept": visit.kept,
    }


PAGE = Page(
    "topics",
    "/topics",
    "topics.title",
    show,
    parts=("topics",),
    fields=("q", "show", "system", "sort", "descending", "page"),
    cookies=("stars",),
    group="topics",
    key="t",
)
