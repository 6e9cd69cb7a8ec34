"""`explain`: every broker of a topic's route on each server, when it was last seen and when it expires."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.commands.diff import difference_table
from namesrv_client.ctl.commands.topics import TopicArgument, joined
from namesrv_client.ctl.comparison import Facts, View, differences, facts_with_addresses, perm_text
from namesrv_client.ctl.health import Problem, group_problem, groups_of, lines_of
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, ago, lasting
from namesrv_client.ctl.running import Columns, absences_in, server_table, show
from namesrv_client.ctl.servers import Responses, Servers
from namesrv_remoting.bodies.extensions import LiveBroker
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.group_health import SILENT_SHARE

_STYLES: Final = {"fine": "green", "unknown": ""}
# Stands for a broker without a live entry.
_NO_ENTRY: Final = LiveBroker("", "", 0, "")


def liveness(live: LiveBroker) -> str:
    """The liveness of a broker on one server: fine, late or overdue; unknown on Apache's server."""
    age, left, expiry = live.age_seconds, live.expires_in_seconds, live.expiry_seconds
    if age is None or left is None or expiry is None:
        return "unknown"
    if left < 0:
        return "overdue"
    return "late" if age > expiry * SILENT_SHARE else "fine"


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
        return {**own, **ages, **queues, "write_wiped": self.entry.write_wiped, "data_version": version}


_COLUMNS: Final[Columns[Instance]] = {
    "broker": lambda one: one.broker_name,
    "id": lambda one: one.broker_id,
    "address": lambda one: one.broker_addr,
    "verdict": lambda one: Text(one.verdict, style=_STYLES.get(one.verdict, "red")),
    "last seen": lambda one: ago(one.entry.age_seconds),
    "expires in": lambda one: lasting(one.entry.expires_in_seconds),
    "perm": lambda one: one.queues and perm_text(one.queues.perm),
    "wiped": lambda one: one.entry.write_wiped,
    "queues": lambda one: one.queues and f"{one.queues.read_queue_nums}/{one.queues.write_queue_nums}",
    "version": lambda one: one.entry.data_version and one.entry.data_version.counter,
}


@dataclass(frozen=True, slots=True)
class Explained:
    """The topic on one server: the facts to compare between servers, None without a route; and the brokers."""

    facts: Facts | None
    instances: Sequence[Instance]
    # Problems of the broker groups in the route.
    problems: Sequence[Problem] = ()


def explain(options: Options, topic: TopicArgument) -> None:
    """Show when each broker of a topic's route was last seen and when it expires, on each server.

    The verdict is fine, late (silent for over half of its time), overdue (the next scan evicts it), gone (in the
    route, but not alive), missing (only other servers have it), no master (the group has only slaves) or unknown (not
    available from Apache's NameServer).
    Exits with 1 if a server does not know the topic, if servers disagree, if one of them did not answer, or if a
    broker group of the route has no master, or one that is silent while a slave is not.
    """

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: _explained(server, topic))
        views: dict[str, View] = {
            server: {} if found.facts is None else {("topic", topic): found.facts}
            for server, found in answers.given.items()
        }
        differing = differences(views)
        absent = absences_in(answers, lambda found: [f"topic {topic}"] if found.facts is None else [])
        problems = lines_of({server: found.problems for server, found in answers.given.items()})
        everywhere = _with_missing(answers)
        body = server_table(everywhere, _COLUMNS, lambda found: found.instances)
        return Report(
            {
                "topic": topic,
                "agree": not differing and len(answers.given) == len(answers.outcomes),
                "servers": everywhere.documents(
                    lambda found: {
                        "present": found.facts is not None,
                        "brokers": [one.document() for one in found.instances],
                        "problems": [one.document() for one in found.problems],
                    }
                ),
                "differences": [asdict(one) for one in differing],
            },
            [*body, Text(""), *difference_table(differing, tuple(views))] if differing else body,
            max(answers.code(needs_all=True), ExitCode.NO if absent or differing or problems else ExitCode.OK),
            [*answers.problems(), *absent, *([f"the servers disagree about {topic}"] if differing else []), *problems],
        )

    show(options, ask)


async def _explained(server: NameServer, topic: str) -> Explained:
    route = (await server.routes([topic]))[topic]
    if route is None:
        return Explained(None, ())
    knows = await server.is_native()
    brokers = await server.brokers()
    live = {(one.cluster, one.broker_addr): one for one in brokers} if knows else {}
    instances = []
    for group, queues in joined(route):
        if group is None or not group.broker_addrs:
            instances.append(Instance(None, queues.broker_name, None, None, queues, None, knows))
            continue
        if MASTER_ID not in group.broker_addrs:
            instances.append(Instance(group.cluster, group.broker_name, MASTER_ID, None, queues, None, knows))
        for number, address in sorted(group.broker_addrs.items()):
            known = live.get((group.cluster, address))
            instances.append(Instance(group.cluster, group.broker_name, number, address, queues, known, knows))
    # Ages always differ between servers, and are left out.
    facts = facts_with_addresses(route)
    facts.update({f"wiped on {one.broker_name}": True for one in instances if one.entry.write_wiped})
    return Explained(facts, instances, _problems(topic, route, brokers))


def _problems(topic: str, route: TopicRouteData, brokers: Sequence[LiveBroker]) -> list[Problem]:
    """The problems of the broker groups that hold the topic's queues."""
    groups = groups_of(brokers)
    total = sum(queues.write_queue_nums for queues in route.queue_datas)
    found = []
    for group, queues in joined(route):
        cluster = "" if group is None else group.cluster
        affected = f"{queues.write_queue_nums} of {total} write queues of {topic}"
        key = cluster, queues.broker_name
        if problem := group_problem(key, groups.get(key, ()), affected):
            found.append(problem)
    return found


def _with_missing(answers: Responses[Explained]) -> Responses[Explained]:
    """The same answers; each server also gets the instances that only other servers have, as missing."""
    everywhere = {
        one.key: one for found in answers.given.values() for one in found.instances if one.broker_addr is not None
    }

    def completed(found: Explained) -> Explained:
        own = {one.key: one for one in found.instances}
        missing = {key: replace(one, queues=None, live=None) for key, one in everywhere.items()}
        return replace(found, instances=[one for _, one in sorted({**missing, **own}.items())])

    return Responses({**answers.outcomes, **{server: completed(found) for server, found in answers.given.items()}})
