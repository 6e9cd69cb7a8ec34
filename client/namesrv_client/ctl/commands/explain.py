"""`explain`: every broker of a topic's route on each server, when it was last seen and when it expires."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.commands.diff import difference_table
from namesrv_client.ctl.commands.topics import TopicArgument, joined
from namesrv_client.ctl.comparison import Fact, Facts, View, differences, facts_with_addresses, perm_text
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, ago, lasting
from namesrv_client.ctl.problems import code_of, document_of, line_of, report_of
from namesrv_client.ctl.running import Columns, absences_in, server_table, show
from namesrv_client.ctl.servers import Responses, Servers
from namesrv_client.health import Gone, GroupKey, Problem, Server, liveness, problems, with_shares, write_shares
from namesrv_remoting.bodies.extensions import LiveBroker
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.errors import SystemError_

_STYLES: Final = {"fine": "green", "unknown": ""}
# Stands for a broker without a live entry.
_NO_ENTRY: Final = LiveBroker("", "", 0, "")


@dataclass(frozen=True, slots=True)
class Instance:
    """One broker of a route, as one server reports it."""

    cluster: str | None
    broker_name: str
    # None: the group has queues but no instance.
    broker_id: int | None
    # None: the instance does not exist; for a master, the group has only slaves.
    broker_addr: str | None
    # None: only other servers have the instance.
    queues: QueueData | None
    # None: the broker is not alive, or the server does not report liveness.
    live: LiveBroker | None
    knows_liveness: bool

    @property
    def key(self) -> tuple[str, int, str]:
        """Key of the instance, the same on every server; lists are sorted by it."""
        return self.broker_name, -1 if self.broker_id is None else self.broker_id, self.broker_addr or ""

    @property
    def entry(self) -> LiveBroker:
        """The live entry, or an empty entry."""
        return self.live or _NO_ENTRY

    @property
    def verdict(self) -> str:
        """The `liveness`; or no master; gone, if in the route but not alive; missing, if only other servers have it."""
        if self.queues is None:
            return "missing"
        if self.broker_id == MASTER_ID and self.broker_addr is None:
            return "no master"
        if self.live is None and self.knows_liveness:
            return "gone"
        return liveness(self.entry)

    def document(self) -> dict[str, Any]:
        """The members for JSON and YAML."""
        own = {name: getattr(self, name) for name in ("cluster", "broker_name", "broker_id", "broker_addr", "verdict")}
        ages = {name: getattr(self.entry, name) for name in ("age_seconds", "expires_in_seconds", "expiry_seconds")}
        queues = {name: getattr(self.queues, name, None) for name in ("perm", "read_queue_nums", "write_queue_nums")}
        version = msgspec.to_builtins(self.entry.data_version)
        return {**own, **ages, **queues, "write_removed": self.entry.write_removed, "data_version": version}


_COLUMNS: Final[Columns[Instance]] = {
    "broker": lambda one: one.broker_name,
    "id": lambda one: one.broker_id,
    "address": lambda one: one.broker_addr,
    "verdict": lambda one: Text(one.verdict, style=_STYLES.get(one.verdict, "red")),
    "last seen": lambda one: ago(one.entry.age_seconds),
    "expires in": lambda one: lasting(one.entry.expires_in_seconds),
    "perm": lambda one: one.queues and perm_text(one.queues.perm),
    "write removed": lambda one: one.entry.write_removed,
    "queues": lambda one: one.queues and f"{one.queues.read_queue_nums}/{one.queues.write_queue_nums}",
    "version": lambda one: one.entry.data_version and one.entry.data_version.counter,
}


@dataclass(frozen=True, slots=True)
class Explained:
    """The topic on one server: the facts to compare between servers, None without a route; and the brokers."""

    facts: Facts | None
    instances: Sequence[Instance]
    # None without a route.
    route: TopicRouteData | None = None
    # The broker groups in the route.
    report: Server | None = None
    # The reason why the topic has no route; empty if it is unknown.
    why: str = ""

    def absence(self, topic: str) -> list[str]:
        """A text that names the topic if the server has no route of it, with the reason."""
        if self.facts is not None:
            return []
        return [f"topic {topic}: {self.why}" if self.why else f"topic {topic}"]


def explain(options: Options, topic: TopicArgument) -> None:
    """Show when each broker of a topic's route was last seen and when it expires, on each server.

    The verdict is fine, late (silent for over half of its time), overdue (the next scan evicts it), gone (in the
    route, but not alive), missing (only other servers have it), no master (the group has only slaves) or unknown (not
    available from Apache's NameServer).
    If a server has no route of the topic, the reason is shown, such as the broker that left last, when and why.
    Exits with 1 if a server does not know the topic, if servers disagree, if one of them did not answer, or if a
    broker group of the route has no master, or one that is silent while a slave is not.
    """

    async def ask(servers: Servers) -> Report:
        responses = await servers.ask(lambda server: _explained(server, topic))
        views: dict[str, View] = {
            server: {} if explained.facts is None else {("topic", topic): explained.facts}
            for server, explained in responses.given.items()
        }
        differing = differences(views)
        absent = absences_in(responses, lambda explained: explained.absence(topic))
        shown_problems = _problems(topic, responses.given.values())
        everywhere = _with_missing(responses)
        body = server_table(everywhere, _COLUMNS, lambda explained: explained.instances)
        return Report(
            {
                "topic": topic,
                "agree": not differing and len(responses.given) == len(responses.outcomes),
                "servers": everywhere.documents(
                    lambda explained: {
                        "present": explained.facts is not None,
                        "why": explained.why or None,
                        "brokers": [one.document() for one in explained.instances],
                    }
                ),
                "problems": [document_of(one) for one in shown_problems],
                "differences": [one.document() for one in differing],
            },
            [*body, Text(""), *difference_table(differing, tuple(views))] if differing else body,
            max(responses.code(needs_all=True), ExitCode.NO if absent or differing else code_of(shown_problems)),
            [
                *responses.failures(),
                *absent,
                *([f"the servers disagree about {topic}"] if differing else []),
                *map(line_of, shown_problems),
            ],
        )

    show(options, ask)


async def _explained(server: NameServer, topic: str) -> Explained:
    info = await server.info()
    if info is not None and not info.ready:
        # The response to a route request does not name the brokers that the server waits for.
        raise SystemError_(f"name server not ready: {info.readiness}")
    route = (await server.routes([topic]))[topic]
    if route is None:
        return Explained(None, (), why=await server.why_no_route(topic))
    brokers = await server.brokers()
    instances = _instances(route, None if info is None else brokers)
    # Ages always differ between servers, and are left out.
    facts = facts_with_addresses(route)
    facts.update({Fact("write removed on", one.broker_name): True for one in instances if one.entry.write_removed})
    groups = {(one.cluster, one.broker_name) for one in route.broker_datas}
    return Explained(facts, instances, route, await report_of(server, info, brokers, groups))


def _instances(route: TopicRouteData, brokers: Iterable[LiveBroker] | None) -> list[Instance]:
    """The instances of the groups in a route; None instead of live brokers: the server reports no liveness."""
    live: dict[GroupKey, dict[int, LiveBroker]] = {}
    for one in brokers or ():
        live.setdefault((one.cluster, one.broker_name), {})[one.broker_id] = one
    instances = []
    for group, queues in joined(route):
        absent = Instance(
            cluster=None,
            broker_name=queues.broker_name,
            broker_id=None,
            broker_addr=None,
            queues=queues,
            live=None,
            knows_liveness=brokers is not None,
        )
        if group is None or not group.broker_addrs:
            instances.append(absent)
            continue
        absent = replace(absent, cluster=group.cluster)
        if MASTER_ID not in group.broker_addrs:
            instances.append(replace(absent, broker_id=MASTER_ID))
        live_of_group = live.get((group.cluster, group.broker_name), {})
        for broker_id, address in sorted(group.broker_addrs.items()):
            entry = _live(group, broker_id, live_of_group)
            instances.append(replace(absent, broker_id=broker_id, broker_addr=address, live=entry))
    return instances


def _live(group: BrokerData, number: int, live: Mapping[int, LiveBroker]) -> LiveBroker | None:
    """The live entry of a broker in the route, by its id: its address there may be that of an address view."""
    if number == MASTER_ID and MASTER_ID not in live:
        # An acting master has the master's id in the route, in the place of its own.
        number = min(live.keys() - group.broker_addrs.keys(), default=number)
    return live.get(number)


def _problems(topic: str, explanations: Iterable[Explained]) -> list[Problem]:
    """The problems of the broker groups that hold the topic's queues, without those of the servers."""
    known = [(one.report, one.route) for one in explanations if one.report is not None and one.route is not None]
    reports = [report for report, _ in known]
    live = {broker.key[:2] for report in reports for broker in report.brokers or ()}
    gone = {one.key: one for _, route in known for one in _gone(topic, route, live)}
    shares = {
        name: share
        for _, route in known
        for name, share in write_shares([(topic, route)], [queues.broker_name for queues in route.queue_datas]).items()
    }
    return with_shares((one for one in problems(reports, gone=gone.values()) if one.group is not None), shares)


def _gone(topic: str, route: TopicRouteData, live: Iterable[GroupKey]) -> list[Gone]:
    """The broker groups of the route without a live broker; an Apache server keeps the queues of removed brokers."""
    gone = []
    shares = write_shares([(topic, route)], [queues.broker_name for queues in route.queue_datas])
    for group, queues in joined(route):
        key = ("" if group is None else group.cluster, queues.broker_name, MASTER_ID)
        if key[:2] not in live:
            gone.append(Gone(key, 0.0, "", 1, shares[queues.broker_name]))
    return gone


def _with_missing(responses: Responses[Explained]) -> Responses[Explained]:
    """The same responses; each server also gets the instances that only other servers have, as missing."""
    everywhere = {
        one.key: one for known in responses.given.values() for one in known.instances if one.broker_addr is not None
    }

    def completed(explained: Explained) -> Explained:
        own = {one.key: one for one in explained.instances}
        missing = {key: replace(one, queues=None, live=None) for key, one in everywhere.items()}
        return replace(explained, instances=[one for _, one in sorted({**missing, **own}.items())])

    return responses.mapped(completed)
