"""`diff`: a comparison of several NameServers, broker by broker and topic by topic."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.comparison import Difference, View, differences, grouped, same_servers, view_of
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, cell, counted, table
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.bodies.route import ClusterInfo
from namesrv_remoting.errors import RemotingError

# Number of names in one line of the table.
_NAMES_SHOWN: Final = 3
DIFFERENCE_HEADS: Final = ("what", "name", "fact")


def diff(options: Options) -> None:
    """Compare NameServers: brokers (addresses, zone) and topics (queues, permissions, order).

    Exits with 1 if they differ, if one of them cannot be compared, or if two addresses are the same server. A change
    between the requests looks like a difference; run the command again to be sure. A server that restarts between the
    requests is not compared.
    """
    if len(options.addresses) < 2:  # noqa: PLR2004 - a comparison needs two
        raise typer.BadParameter("diff needs at least two servers", param_hint="--server")
    show(options, _diff)


class _Overview(NamedTuple):
    """The first responses of a server."""

    # None from Apache's server.
    boot_id: str | None
    clusters: ClusterInfo
    topics: list[str]


async def _diff(servers: Servers) -> Report:
    """Request brokers and topics of each server, then the routes of all topics."""

    async def overview(server: NameServer) -> _Overview:
        return _Overview(await server.boot_id(), await server.cluster_info(), await server.topics())

    known = await servers.ask(overview)
    topics = sorted(frozenset().union(*(one.topics for one in known.given.values())))

    async def view(server: NameServer) -> View:
        outcome = known.outcomes[server.address]
        if isinstance(outcome, RemotingError):
            # A server that did not answer the first request gets no second one.
            raise outcome
        routes = await server.routes(topics)
        if await server.boot_id() != outcome.boot_id:
            # Brokers of one boot and routes of the next would look like differences.
            raise RemotingError("restarted during the comparison")
        return view_of(outcome.clusters, routes)

    responses = await servers.ask(view)
    views = responses.given
    same_server = same_servers({address: known.given[address].boot_id for address in views})
    differing = differences(views)
    body: list[RenderableType] = []
    if len(views) > 1:
        counts = _counts(next(iter(views.values())))
        what = f"{counted(counts['brokers'], 'broker')}, {counted(counts['topics'], 'topic')}"
        same = f"the same on {len(views)} servers: {what}"
        body = difference_table(differing, tuple(views)) or ([] if same_server else [Text(same)])
    return Report(
        {
            "same": not differing and not same_server and len(views) == len(servers.all),
            "servers": responses.documents(_counts),
            "differences": [one.document() for one in differing],
        },
        body,
        max(responses.code(needs_all=True), ExitCode.NO if differing or same_server else ExitCode.OK),
        [*responses.failures(), *same_server],
    )


def _counts(view: View) -> dict[str, int]:
    topics = sum(kind == "topic" for kind, _ in view)
    return {"brokers": len(view) - topics, "topics": topics}


def difference_table(differing: Sequence[Difference], servers: Sequence[str]) -> list[RenderableType]:
    """A line per fact, a column per server."""
    rows = [difference_row(names, one, servers) for names, one in grouped(differing)]
    return table((*DIFFERENCE_HEADS, *servers), rows)


def difference_row(names: Sequence[str], one: Difference, servers: Sequence[str]) -> tuple[object, ...]:
    """The line of a fact about which the servers disagree in the same way for all names."""
    # Showing one more name takes no more room than "and 1 more".
    names_shown = names if len(names) <= _NAMES_SHOWN + 1 else names[:_NAMES_SHOWN]
    more = len(names) - len(names_shown)
    texts = [
        Text("")
        if server not in one.values
        else Text("no", style="red")
        if one.values[server] is False
        else cell(one.values[server])
        for server in servers
    ]
    return (one.kind, ", ".join(names_shown) + (f" and {more:,} more" if more else ""), one.fact, *texts)
