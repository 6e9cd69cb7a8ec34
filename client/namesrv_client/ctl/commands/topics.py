"""`topics` and `route`: which topics there are, and where their queues are."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer

from namesrv_client.ctl.commands.brokers import group_members, slaves
from namesrv_client.ctl.listing import absences_in, listing
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Servers
from namesrv_client.ctl.tables import table
from namesrv_client.ctl.wording import perm_text
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID

Routes = Mapping[str, TopicRouteData | None]

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]


def topics(
    options: Options,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only topics of this cluster.")] = None,
) -> None:
    """List all topics.

    Exits with 1 if the given cluster has none.
    """
    show(options, lambda servers: topic_report(servers, cluster))


async def topic_report(servers: Servers, cluster: str | None) -> Report:
    """The list of each server for programs, all lists in one for people."""
    answers = await servers.ask(lambda server: server.topics(cluster))
    report = listing(
        answers,
        "topics",
        document=list,
        columns=("topic",),
        rows=lambda found: ((topic,) for topic in found),
        absences=absences_in(
            answers, lambda found: () if found or cluster is None else (f"topic in cluster {cluster}",)
        ),
    )
    if len(answers.given) <= 1:
        return report
    known = {server: frozenset(found) for server, found in answers.given.items()}
    rows = [(topic, _where(topic, known)) for topic in sorted(frozenset().union(*known.values()))]
    return Report(report.document, table(("topic", "known to"), rows), report.code, report.problems)


def _where(topic: str, known: Mapping[str, frozenset[str]]) -> str:
    servers = [server for server, found in known.items() if topic in found]
    return "all" if len(servers) == len(known) else " ".join(servers)


def route(options: Options, topics: TopicsArgument) -> None:
    """Show where the queues of topics are.

    Exits with 1 if a server that answered does not know one of them.
    """
    show(options, lambda servers: route_report(servers, topics))


async def route_report(servers: Servers, topics: list[str]) -> Report:
    """The routes, and who lacks one."""
    answers = await servers.ask(lambda server: server.routes(topics))
    return listing(
        answers,
        "routes",
        document=lambda found: {topic: None if data is None else route_members(data) for topic, data in found.items()},
        columns=("topic", "cluster", "broker", "perm", "read", "write", "master", "slaves"),
        rows=_rows,
        absences=absences_in(answers, absent_topics),
    )


def absent_topics(found: Routes) -> list[str]:
    """Each topic that a server positively does not know."""
    return [f"topic {topic}" for topic, data in found.items() if data is None]


def _rows(found: Routes) -> Iterator[tuple[object, ...]]:
    for topic, data in found.items():
        if data is None:
            continue
        for group, queues in joined(data):
            yield (
                topic,
                None if group is None else group.cluster,
                queues.broker_name,
                perm_text(queues.perm),
                queues.read_queue_nums,
                queues.write_queue_nums,
                None if group is None else group.broker_addrs.get(MASTER_ID),
                None if group is None else slaves(group),
            )


def joined(data: TopicRouteData) -> list[tuple[BrokerData | None, QueueData]]:
    """Each queue entry with its broker group, which Apache's server may leave out; by broker name."""
    groups = {group.broker_name: group for group in data.broker_datas}
    ordered = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    return [(groups.get(queues.broker_name), queues) for queues in ordered]


def route_members(data: TopicRouteData) -> dict[str, Any]:
    """A route for programs."""
    mappings = data.topic_queue_mapping_by_broker
    return {
        "brokers": [
            {"cluster": group.cluster, **group_members(group)}
            for group in sorted(data.broker_datas, key=lambda group: group.broker_name)
        ],
        "queues": [msgspec.to_builtins(queues) for _, queues in joined(data)],
        "filter_servers": {addr: list(found) for addr, found in sorted(data.filter_server_table.items())},
        "order_topic_conf": data.order_topic_conf,
        "static_mappings": None
        if not mappings
        else {
            name: {**msgspec.structs.asdict(info), "curr_id_map": _text_keys(info.curr_id_map)}
            for name, info in sorted(mappings.items())
        },
    }


def _text_keys(found: Mapping[int, int] | None) -> dict[str, int] | None:
    return None if found is None else {str(key): value for key, value in sorted(found.items())}
