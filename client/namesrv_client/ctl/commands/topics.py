"""`topics`, `route` and `delete-topic`: the topics of servers, and the brokers of their queues."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import RenderableType

from namesrv_client.ctl.commands.brokers import group_members, slaves
from namesrv_client.ctl.comparison import perm_text
from namesrv_client.ctl.completing import cluster_names, topic_names
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import counted, table
from namesrv_client.ctl.running import UNCHANGED, Columns, change, show_list
from namesrv_client.ctl.servers import reason
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID, RequestCode
from namesrv_remoting.errors import NoPermissionError, ResponseError, TlsRequiredError
from namesrv_remoting.zones import ZoneStep, read_zone_fallback

Routes = Mapping[str, TopicRouteData | None]

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of a topic.", show_default=False, autocompletion=topic_names)
]
TopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=topic_names)
]


def topics(
    options: Options,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Only topics of this cluster.", autocompletion=cluster_names)
    ] = None,
) -> None:
    """List all topics.

    Exits with 1 if the given cluster has none.
    """

    def merged(given: Mapping[str, list[str]]) -> list[RenderableType]:
        known = {server: frozenset(names) for server, names in given.items()}
        rows = []
        for topic in sorted(frozenset().union(*known.values())):
            having = [server for server, names in known.items() if topic in names]
            # A server that did not answer may lack the topic.
            rows.append((topic, "all" if len(having) == len(options.addresses) else " ".join(having)))
        return table(("topic", "known to"), rows)

    show_list(
        options,
        lambda server: server.topics(cluster),
        "topics",
        {"topic": lambda topic: topic},
        lambda names: names,
        absent=lambda names: [] if names or cluster is None else [f"topic in cluster {cluster}"],
        merged=merged,
    )


_ROUTE: Final[Columns[tuple[str, BrokerData | None, QueueData]]] = {
    "topic": lambda it: it[0],
    "cluster": lambda it: it[1] and it[1].cluster,
    "broker": lambda it: it[2].broker_name,
    "perm": lambda it: perm_text(it[2].perm),
    "read": lambda it: it[2].read_queue_nums,
    "write": lambda it: it[2].write_queue_nums,
    "master": lambda it: it[1] and it[1].broker_addrs.get(MASTER_ID),
    "slaves": lambda it: it[1] and slaves(it[1]),
}


@dataclass(frozen=True, slots=True)
class _Requested:
    """The routes of the requested topics, and a line for each topic whose route the server denies."""

    routes: Routes
    refusals: Sequence[str] = ()
    # with --explain: a line for each topic
    explanations: Sequence[str] = ()


def route(
    options: Options,
    topics: TopicsArgument,
    zone: Annotated[str, typer.Option("--zone", help="The routes for clients of this zone.", show_default=False)] = "",
    explain: Annotated[  # noqa: FBT002 - an option of the command line
        bool, typer.Option("--explain", help="With --zone: say which zones the routes come from, and why.")
    ] = False,
) -> None:
    """Show where the queues of topics are.

    Exits with 1 if a server that answered does not know one of them, or denies it.
    """
    if explain and not zone:
        raise typer.BadParameter("needs --zone", param_hint="--explain")

    async def requested(server: NameServer) -> _Requested:
        refusals: Mapping[str, NoPermissionError] = {}
        try:
            routes = await server.routes(topics, zone=zone)
        except NoPermissionError as refusal:
            refusals = await server.refused_topics(topics, refusal)
            routes = await server.routes([topic for topic in topics if topic not in refusals], zone=zone)
        return _Requested(
            routes,
            [f"topic {topic}: {reason(error)}" for topic, error in refusals.items()],
            await zone_explanations(server, tuple(routes), zone) if explain else (),
        )

    show_list(
        options,
        requested,
        "routes",
        _ROUTE,
        lambda it: ((topic, *row) for topic, data in it.routes.items() if data is not None for row in joined(data)),
        document=lambda it: {topic: data and route_members(data) for topic, data in it.routes.items()},
        absent=lambda it: absent_topics(it.routes),
        refused=lambda it: it.refusals,
        remarks=lambda given: [line for it in given.values() for line in it.explanations],
    )


async def zone_explanations(server: NameServer, topics: Sequence[str], zone: str) -> list[str]:
    """For each topic the zones from which clients of a zone get brokers, with what these zones have."""
    values = {setting.key: setting.value for setting in await server.settings()}
    fallback = read_zone_fallback(values.get("zoneFallback", ""))
    limits = f"{counted(fallback.masters, 'master')} and {counted(fallback.write_queues, 'write queue')}"
    rule = f"zone-fallback adds zones below {limits}" if fallback.is_on else "zone-fallback is off"
    return [
        f"{server.address}: topic {topic}: {'; '.join(_zone_texts(fallback.route(data, zone).steps))} ({rule})"
        for topic, data in (await server.routes(topics)).items()
        if data is not None
    ]


def _zone_texts(steps: Sequence[ZoneStep]) -> Iterator[str]:
    for number, (zone, masters, write_queues) in enumerate(steps):
        name = f"zone {zone}" if zone else "all zones"
        has = f"{counted(masters, 'master')}, {counted(write_queues, 'write queue')}"
        yield f"with {name}: {has}" if number else f"{name}: {has}"


def absent_topics(routes: Routes) -> list[str]:
    """A text for each topic that the server reports as absent."""
    return [f"topic {topic}" for topic, data in routes.items() if data is None]


def joined(data: TopicRouteData) -> list[tuple[BrokerData | None, QueueData]]:
    """Each queue entry with its broker group, which Apache's server may leave out; by broker name."""
    groups = {group.broker_name: group for group in data.broker_datas}
    ordered = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    return [(groups.get(queues.broker_name), queues) for queues in ordered]


def route_members(data: TopicRouteData) -> dict[str, Any]:
    """A route for programs."""
    mappings = {
        name: {
            **msgspec.structs.asdict(info),
            "curr_id_map": info.curr_id_map and {str(key): it for key, it in sorted(info.curr_id_map.items())},
        }
        for name, info in sorted((data.topic_queue_mapping_by_broker or {}).items())
    }
    return {
        "brokers": [
            {"cluster": group.cluster, **group_members(group)}
            for group in sorted(data.broker_datas, key=lambda group: group.broker_name)
        ],
        "queues": [msgspec.to_builtins(queues) for _, queues in joined(data)],
        "filter_servers": {addr: list(servers) for addr, servers in sorted(data.filter_server_table.items())},
        "order_topic_conf": data.order_topic_conf,
        "static_mappings": mappings or None,
    }


# The result of a deletion, by whether the topic existed.
_RESULTS: Final[Mapping[bool | None, str]] = {True: "done", False: UNCHANGED, None: "done, if it existed"}


def delete_topic(
    options: Options,
    topic: TopicArgument,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            help="Only from this cluster's brokers.",
            show_default=False,
            autocompletion=cluster_names,
        ),
    ] = None,
) -> None:
    """Delete a topic from every server. Brokers that still have it register it again within 30 s.

    Exits with 1 if no server that answered had it, or one was not reached.
    """

    async def delete(server: NameServer) -> bool | None:
        """Delete the topic; return whether it existed, None if that is unknown."""
        existed: bool | None
        try:
            # The list and not the route: a server that is not ready refuses a route request, and closes the connection.
            existed = topic in await server.topics(cluster or None)
        except TlsRequiredError:
            raise
        except ResponseError:
            # A server can be configured to refuse the topic list.
            existed = None
        fields = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        await server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
        return existed

    of_cluster = "" if cluster is None else f" of cluster {cluster}"
    change(
        options,
        delete,
        {"topic": topic, "cluster": cluster},
        confirming=f"delete topic {topic}{of_cluster}",
        members=lambda existed: {"existed": existed},
        result=lambda existed: _RESULTS[existed],
        absences=lambda responses: (
            [f"no topic {topic}{of_cluster}"] if set(responses.given.values()) == {False} else []
        ),
    )
