"""`diff`: do several NameServers say the same, broker by broker and topic by topic?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import compare, exit_codes
from namesrv_client.ctl.answers import ClusterInfo
from namesrv_client.ctl.compare import Alike, Difference, Fact, View
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Answers, Servers
from namesrv_client.ctl.tables import cell, table

# names that one line of the table holds
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Known:
    info: ClusterInfo
    topics: Sequence[str]


def diff(options: Options) -> None:
    """In what the NameServers differ: brokers (addresses, zone), topics (queues, permissions, order).

    Ends with 1 when they differ, or when one of them cannot be compared. What happens between the questions looks
    like a difference; ask again.
    """
    if len(options.addresses) < 2:  # noqa: PLR2004 - two make a comparison
        raise typer.BadParameter("there is nothing to compare with only one server", param_hint="--server")
    show(options, diff_report)


async def diff_report(servers: Servers) -> Report:
    """Ask for what there is, then for the routes of all of it."""
    known = await servers.ask(_known)
    topics = sorted(frozenset(topic for found in known.given.values() for topic in found.topics))
    # a server that did not answer the first question is not asked the second
    answers = await servers.ask(lambda server: _view(server, known.given.get(server.address), topics))
    views = {server: view for server, view in answers.given.items() if view is not None}
    merged = Answers(
        answers.servers,
        views,
        {**known.refused, **answers.refused},
        {**known.unreachable, **answers.unreachable},
    )
    found = compare.differences(views) if views else []
    return Report(
        {
            "same": not found and len(views) == len(servers.all),
            "servers": merged.documents(lambda view: {"brokers": len(view.brokers), "topics": len(view.topics)}),
            "differences": [one.document() for one in found],
        },
        _body(found, views),
        max(merged.code(needs_all=True), exit_codes.NO if found else exit_codes.OK),
        merged.problems(),
    )


async def _known(server: NameServer) -> _Known:
    return _Known(await server.cluster_info(), await server.topics())


async def _view(server: NameServer, known: _Known | None, topics: Sequence[str]) -> View | None:
    if known is None:
        return None
    return View(compare.broker_facts(known.info), compare.topic_facts(await server.routes(topics)))


def _body(found: Sequence[Difference], views: Mapping[str, View]) -> list[RenderableType]:
    if len(views) < 2:  # noqa: PLR2004 - nothing was compared
        return []
    if not found:
        view = next(iter(views.values()))
        return [Text(f"the same on {len(views)} servers: {len(view.brokers)} brokers, {len(view.topics)} topics")]
    return difference_table(found, tuple(views))


def difference_table(found: Sequence[Difference], servers: Sequence[str]) -> list[RenderableType]:
    """A line per fact, a column per server."""
    return table(
        ("what", "name", "fact", *servers),
        [
            (one.kind, _names(one), one.fact, *(_value(one.values, server) for server in servers))
            for one in compare.grouped(found)
        ],
    )


def _names(alike: Alike) -> str:
    names = alike.names
    # one more name is no longer than saying that there is one more
    shown = names if len(names) <= _NAMES_SHOWN + 1 else names[:_NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _value(values: Mapping[str, Fact], server: str) -> Text:
    if server not in values:
        return Text("")
    value = values[server]
    return Text("no", style="red") if value is False else cell(value)
