"""Settings: their value on each server, and where servers drift apart."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.pages.query import choice
from namesrv_console.views.tables import OWN_SETTINGS, value_rows

SHOWS = ("all", "drifting")


async def show(visit: Visit) -> Content:
    """All settings, or those that drift."""
    answers = await visit.console.asked.of("config", visit.reachable, lambda server: server.config())
    rows = value_rows(answers.given, OWN_SETTINGS)
    shown, text = choice(visit.query, "show", SHOWS), visit.query.get("q", "")
    wanted = text.strip().casefold()
    return {
        "text": text,
        "show": shown,
        "shows": SHOWS,
        "rows": [row for row in rows if (row.drifts or shown == "all") and wanted in row.key.casefold()],
        "drifting": sum(row.drifts for row in rows),
        "servers": list(answers.given),
        "problems": answers.problems(),
    }


PAGE = Page("settings", "/settings", "settings.title", show, parts=("settings",))
