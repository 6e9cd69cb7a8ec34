"""`explain`: every broker of a topic's route on each server, when it was last heard and when it would be evicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.commands.diff import Fact, Facts, View, difference_table, differences, route_facts
from namesrv_client.ctl.commands.topics import joined
from namesrv_client.ctl.listing import absences_in
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Answers, Servers
from namesrv_client.ctl.tables import table
from namesrv_client.ctl.wording import lasting, perm_text
from namesrv_remoting.bodies.extension_answers import LiveBroker
from namesrv_remoting.bodies.route import QueueData, TopicRouteData

# of the time that a broker may be silent; with 120 s and a heartbeat every 30 s one is late that missed a second one
_LATE: float = 0.5


@dataclass(frozen=True, slots=True)
class Instance:
    """One broker of a route, as one server has it."""

    cluster: str | None
    broker_name: str
    # None: the group has queues and no instance
    broker_id: int | None
    broker_addr: str | None
    queues: QueueData
    live: LiveBroker | None
    # whether the server tells who lives
    tells_liveness: bool
    # only other servers have it
    is_missing: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Which instance it is, on whatever server."""
        return self.broker_name, self.broker_id, self.broker_addr

    @property
    def order(self) -> tuple[str, int, str]:
        """Where it stands in a list."""
        return self.broker_name, -1 if self.broker_id is None else self.broker_id, self.broker_addr or ""

    @property
    def verdict(self) -> str:
        """In a word: fine, late, overdue; gone, if it is in the route and not alive; missing, if others have it."""
        if self.is_missing:
            return "missing"
        if not self.tells_liveness:
            return "unknown"
        if self.live is None:
            return "gone"
        age, left, expiry = self.live.age_seconds, self.live.expires_in_seconds, self.live.expiry_seconds
        if age is None or left is None or expiry is None:
            return "unknown"
        if left < 0:
            return "overdue"
        return "late" if age > expiry * _LATE else "fine"

    def document(self) -> dict[str, Any]:
        """Its members."""
        live = self.live
        return {
            "cluster": self.cluster,
            "broker_name": self.broker_name,
            "broker_id": self.broker_id,
            "broker_addr": self.broker_addr,
            "verdict": self.verdict,
            "age_seconds": None if live is None else live.age_seconds,
            "expires_in_seconds": None if live is None else live.expires_in_seconds,
            "expiry_seconds": None if live is None else live.expiry_seconds,
            "perm": None if self.is_missing else self.queues.perm,
            "read_queue_nums": None if self.is_missing else self.queues.read_queue_nums,
            "write_queue_nums": None if self.is_missing else self.queues.write_queue_nums,
            "write_wiped": None if live is None else live.write_wiped,
            "data_version": None if live is None else msgspec.to_builtins(live.data_version),
        }

    def row(self) -> tuple[object, ...]:
        """Its cells."""
        if self.is_missing:
            return (self.broker_name, self.broker_id, self.broker_addr, Text(self.verdict, style="red"), *[None] * 6)
        live = self.live
        heard = None if live is None else lasting(live.age_seconds)
        return (
            self.broker_name,
            self.broker_id,
            self.broker_addr,
            Text(self.verdict, style="green" if self.verdict == "fine" else "red" if self.verdict != "unknown" else ""),
            None if heard is None else f"{heard} ago",
            None if live is None else lasting(live.expires_in_seconds),
            perm_text(self.queues.perm),
            None if live is None else live.write_wiped,
            f"{self.queues.read_queue_nums}/{self.queues.write_queue_nums}",
            None if live is None or live.data_version is None else live.data_version.counter,
        )


_COLUMNS = ("broker", "id", "address", "verdict", "heard", "evicted in", "perm", "wiped", "queues", "version")


@dataclass(frozen=True, slots=True)
class Explained:
    """What one server says of the topic, and what it lacks."""

    route: TopicRouteData | None
    instances: Sequence[Instance]

    def with_missing(self, everywhere: Mapping[tuple[object, ...], Instance]) -> "Explained":
        """The same with the instances that only other servers have."""
        known = {one.key for one in self.instances}
        missing = [replace(one, live=None, is_missing=True) for key, one in everywhere.items() if key not in known]
        return replace(self, instances=sorted((*self.instances, *missing), key=lambda one: one.order))

    def facts(self) -> Facts:
        """What other servers should say, too; ages differ by nature."""
        if self.route is None:
            return {}
        found: dict[str, Fact] = {**route_facts(self.route)}
        for one in self.instances:
            if one.is_missing:
                continue
            found[f"address of {one.broker_name}/{one.broker_id}"] = one.broker_addr
            if one.live is not None and one.live.write_wiped:
                found[f"wiped on {one.broker_name}"] = True
        return found


def explain(
    options: Options, topic: Annotated[str, typer.Argument(help="Name of a topic.", show_default=False)]
) -> None:
    """Show when each broker of a topic's route was last heard and will be evicted, on each server.

    The verdict is fine, late (silent for over half of its time), overdue (the next scan evicts it), gone (in the
    route, but not alive), missing (only other servers have it) or unknown (not available from Apache's
    NameServer).
    Exits with 1 if a server does not know the topic, if servers disagree, or if one of them did not answer.
    """
    show(options, lambda servers: explain_report(servers, topic))


async def explain_report(servers: Servers, topic: str) -> Report:
    """Ask each for the route and its brokers, and compare."""
    answers = await servers.ask(lambda server: _explained(server, topic))
    views = {server: View({}, {topic: found.facts()} if found.route else {}) for server, found in answers.given.items()}
    disagreements = differences(views) if views else []
    absent = absences_in(answers, lambda found: () if found.route else (f"topic {topic}",))
    return Report(
        {
            "topic": topic,
            "agree": not disagreements and len(answers.given) == len(answers.servers),
            "servers": _with_missing(answers).documents(_document),
            "differences": [one.document() for one in disagreements],
        },
        _body(_with_missing(answers), difference_table(disagreements, tuple(views))),
        max(answers.code(needs_all=True), exit_codes.NO if absent or disagreements else exit_codes.OK),
        [*answers.problems(), *absent, *([f"the servers disagree about {topic}"] if disagreements else [])],
    )


def _with_missing(answers: Answers[Explained]) -> Answers[Explained]:
    everywhere = {one.key: one for found in answers.given.values() for one in found.instances}
    return replace(answers, given={server: found.with_missing(everywhere) for server, found in answers.given.items()})


def _document(found: Explained) -> Mapping[str, Any]:
    return {"present": found.route is not None, "brokers": [one.document() for one in found.instances]}


def _body(answers: Answers[Explained], disagreements: list[RenderableType]) -> list[RenderableType]:
    several = len(answers.servers) > 1
    rows = [
        ((server, *one.row()) if several else one.row())
        for server, found in answers.given.items()
        for one in found.instances
    ]
    body = table(("server", *_COLUMNS) if several else _COLUMNS, rows)
    return [*body, Text(""), *disagreements] if disagreements else body


async def _explained(server: NameServer, topic: str) -> Explained:
    route = (await server.routes([topic]))[topic]
    if route is None:
        return Explained(None, ())
    tells_liveness = await server.is_native()
    live: dict[tuple[str, str], LiveBroker] = {}
    if tells_liveness:
        live = {(one.cluster, one.broker_addr): one for one in await server.brokers()}
    instances = []
    for group, queues in joined(route):
        if group is None or not group.broker_addrs:
            instances.append(Instance(None, queues.broker_name, None, None, queues, None, tells_liveness))
            continue
        instances += [
            Instance(
                group.cluster,
                group.broker_name,
                broker_id,
                address,
                queues,
                live.get((group.cluster, address)),
                tells_liveness,
            )
            for broker_id, address in sorted(group.broker_addrs.items())
        ]
    return Explained(route, instances)
