"""Settings: their value on each server, its origin, how to change it, and settings that differ between servers."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.tables import OWN_SETTINGS, value_rows, with_unit

SHOWS = ("all", "drifting")


async def show(visit: Visit) -> Content:
    """All settings, or those that differ."""
    settings = await visit.console.responses.of("settings", visit.reachable, lambda server: server.settings())
    reported = {server: {one.key: one for one in found} for server, found in settings.given.items()}
    rows = value_rows(
        {server: {key: one.value for key, one in found.items()} for server, found in reported.items()}, OWN_SETTINGS
    )
    chosen = {
        key
        for found in reported.values()
        for key, one in found.items()
        if one.origin is not None and not one.origin.startswith("default")
    }
    # Settings that differ between servers, then those that differ from the default.
    rows.sort(key=lambda row: (not row.drifts, row.key not in chosen))
    shown, text = visit.choice("show", SHOWS), visit.query.get("q", "")
    wanted = text.strip().casefold()
    return {
        "text": text,
        "show": shown,
        "shows": SHOWS,
        "rows": [row for row in rows if (row.drifts or shown == "all") and wanted in row.key.casefold()],
        "with_unit": with_unit,
        "drifting": sum(row.drifts for row in rows),
        "reported": reported,
        "changed_by": {
            key: one.changed_by for found in reported.values() for key, one in found.items() if one.changed_by
        },
        "problems": [*visit.unreachable, *settings.failures()],
    }


PAGE = Page(
    "settings", "/settings", "settings.title", show, parts=("settings",), fields=("show", "q"), group="servers", key="s"
)
