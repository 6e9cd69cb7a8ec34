"""Topology: clients, servers and broker groups, with broken registrations in red."""

from namesrv_console.console import Content, Page, Visit
from namesrv_console.views.heat import heat_map
from namesrv_console.views.topology import topology


async def show(visit: Visit) -> Content:
    """The picture; brokers that have left unplanned are still in it."""
    report = visit.console.health.report(visit.cluster)
    heat = heat_map(visit.cluster, report.missing, visit.console.compared.disagreements(visit.cluster), visit.now)
    return {"topology": topology(visit.cluster, heat, report.problems)}


PAGE = Page("topology", "/topology", "topology.title", show, parts=("topology",), group="overview", key="m")
