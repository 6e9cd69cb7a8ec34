"""Rates: the traffic of each server during the last quarter of an hour."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.rates import HEIGHT, WIDTH, charts


async def show(visit: Visit) -> Content:
    """A chart of each measure for each server."""
    return {
        "charts": charts(visit.console.rates.shown(), visit.console.clock.monotonic()),
        "width": round(WIDTH),
        "height": round(HEIGHT),
    }


PAGE = Page("rates", "/rates", "rates.title", show, parts=("rates",), group="servers", key="r")
