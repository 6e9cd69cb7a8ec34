"""`diff`: whether several NameServers say the same, broker by broker and topic by topic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Answers, Servers
from namesrv_client.ctl.tables import cell, table
from namesrv_client.ctl.wording import perm_text
from namesrv_remoting.bodies.answers import ClusterInfo
from namesrv_remoting.bodies.route import TopicRouteData

Kind = Literal["broker", "topic"]
Fact = str | int | bool | None
# what one server says of one broker or topic: the name of each fact, and the fact
Facts = Mapping[str, Fact]

# the fact that something is there at all
PRESENT: Final = "present"


@dataclass(frozen=True, slots=True)
class View:
    """What one server says of all brokers and topics, by name."""

    brokers: Mapping[str, Facts]
    topics: Mapping[str, Facts]


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact about which servers disagree; `values` has what each of them says, in their order."""

    kind: Kind
    name: str
    fact: str
    values: Mapping[str, Fact]

    def document(self) -> dict[str, Any]:
        """Its members."""
        return {"kind": self.kind, "name": self.name, "fact": self.fact, "values": dict(self.values)}


def differences(views: Mapping[str, View]) -> list[Difference]:
    """Everything in which they differ: brokers first, by name. Of what only some have, only that is said."""
    found = _differences("broker", {server: view.brokers for server, view in views.items()})
    return found + _differences("topic", {server: view.topics for server, view in views.items()})


def _differences(kind: Kind, views: Mapping[str, Mapping[str, Facts]]) -> list[Difference]:
    found = []
    for name in sorted(frozenset().union(*views.values())):
        having = {server: view[name] for server, view in views.items() if name in view}
        if len(having) < len(views):
            found.append(Difference(kind, name, PRESENT, {server: server in having for server in views}))
        facts: dict[str, None] = {}
        for one in having.values():
            facts.update(dict.fromkeys(one))
        for fact in facts:
            values = {server: one.get(fact) for server, one in having.items()}
            if len(set(values.values())) > 1:
                found.append(Difference(kind, name, fact, values))
    return found


def broker_facts(info: ClusterInfo) -> dict[str, Facts]:
    """Every instance of every group, as `cluster/name/id`."""
    return {
        f"{group.cluster}/{group.broker_name}/{broker_id}": {
            "address": address,
            "zone": group.zone_name,
            "acting master": group.enable_acting_master,
        }
        for group in info.broker_addr_table.values()
        for broker_id, address in group.broker_addrs.items()
    }


def topic_facts(routes: Mapping[str, TopicRouteData | None]) -> dict[str, Facts]:
    """Every topic's queues, by broker. Addresses are the brokers' facts: a lost slave is no news of each topic."""
    return {topic: route_facts(data) for topic, data in routes.items() if data is not None}


def route_facts(data: TopicRouteData) -> Facts:
    """One topic's."""
    facts: dict[str, Fact] = {}
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        counts = f"{queues.read_queue_nums} read, {queues.write_queue_nums} write, {perm_text(queues.perm)}"
        flags = f", flags {queues.topic_sys_flag}" if queues.topic_sys_flag else ""
        facts[f"queues on {queues.broker_name}"] = counts + flags
    facts["order"] = data.order_topic_conf
    for name, info in sorted((data.topic_queue_mapping_by_broker or {}).items()):
        facts[f"static queues on {name}"] = ", ".join(
            f"{logical}={physical}" for logical, physical in sorted((info.curr_id_map or {}).items())
        )
    return facts


@dataclass(frozen=True, slots=True)
class Alike:
    """Differences in the same fact with the same values: a broker that one server lacks is missed in all its topics."""

    kind: Kind
    names: tuple[str, ...]
    fact: str
    values: Mapping[str, Fact]


def grouped(found: Iterable[Difference]) -> list[Alike]:
    """Like ones together, in the order of their first."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for one in found:
        # brokers are few, and each of them matters
        own = one.name if one.kind == "broker" else ""
        groups.setdefault((one.kind, own, one.fact, *one.values.items()), []).append(one)
    return [
        Alike(first.kind, tuple(one.name for one in (first, *others)), first.fact, first.values)
        for first, *others in groups.values()
    ]


# names that one line of the table holds
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Known:
    info: ClusterInfo
    topics: Sequence[str]


def diff(options: Options) -> None:
    """Compare NameServers: brokers (addresses, zone) and topics (queues, permissions, order).

    Exits with 1 if they differ, or if one of them cannot be compared. A change between the questions looks like a
    difference; run it again to be sure.
    """
    if len(options.addresses) < 2:  # noqa: PLR2004 - two make a comparison
        raise typer.BadParameter("diff needs at least two servers", param_hint="--server")
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
    found = differences(views) if views else []
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
    return View(broker_facts(known.info), topic_facts(await server.routes(topics)))


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
            for one in grouped(found)
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
