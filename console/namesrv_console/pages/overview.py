"""Overview: servers, whether they agree, brokers by age, the last events."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.overview import agreement, last_events, oldest_brokers


async def show(visit: Visit) -> Content:
    """All of it; nothing can be asked for."""
    cluster = visit.cluster
    return {"agreement": agreement(cluster), "oldest": oldest_brokers(cluster), "events": last_events(cluster)}


PAGE = Page("overview", "/", "overview.title", show, parts=("servers", "agreement", "oldest", "events"))
