"""Search: brokers and topics by a part of their name; the search field requests `part=results` while the user types."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.search import search


async def show(visit: Visit) -> Content:
    """The best hits."""
    text = visit.query.get("q", "")
    # Brokers of two clusters, on different servers, may have one name.
    clusters: dict[str, set[str]] = {}
    for key in visit.cluster.broker_keys:
        clusters.setdefault(key.broker_name, set()).add(key.cluster)
    topics = visit.console.compared.topics(visit.cluster).made
    return {"text": text, "hits": search(text, clusters, topics), "clusters": clusters}


PAGE = Page("search", "/search", "search.title", show, parts=("results",), fields=("q",))
