"""Whether a staleness report on the servers' own heartbeat logs says what the world knows.

The report is the plain-Python reference that both engines agree with, to the digit. The world knows when each sign of
life arrived, when each server took a broker out, when somebody's process ended or stood still, and what each
connection was answered.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from namesrv.routeinfo.effects import Evicted
from namesrv_remoting.bodies.extensions import read_routes
from namesrv_remoting.bodies.route import TopicRouteData, read_route
from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.simulation.cluster import BrokerNode, Cluster, ServerNode
from tests.simulation.faults import Fault
from tests.simulation.network import End
from tests.spark_jobs.reference import Analysis
from tests.spark_jobs.reference.lines import MICROSECONDS, Boot
from tests.spark_jobs.reference.lives import ClientStaleness, Life

# of a moment that two look at: passes of loops, and what a connection takes
_SLACK_SECONDS: Final = 0.05
# the worst quartz
_DRIFT: Final = 0.002
# after these nobody is told anything, and a broker is dead, for a while or for good
_DEATHS: Final = frozenset({"kill", "power", "freeze"})
# these touch nobody's heartbeats, nor answers
_HARMLESS: Final = frozenset({"topic", "clock"})
# between what arrives at a slow server and what it does about it
_BUSY_PASSES: Final = 30
_PER_SECOND: Final = 1000 * MICROSECONDS

# broker name, id
Member = tuple[str | None, int | None]


@dataclass(slots=True)
class _Removal:
    """A server took a broker out."""

    addr: str
    reason: str
    at: float
    # when its last sign of life had arrived of which the server has to know
    heard: float


@dataclass(slots=True)
class _Run:
    """One run of a server."""

    server: ServerNode
    removals: list[_Removal] = field(default_factory=list)


@dataclass(slots=True)
class _Answer:
    """What a connection was told of a topic, when it arrived: who is in the route."""

    at: float
    members: frozenset[Member]


class StalenessCheck:
    """Looks on during a run, and compares at its end."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._faults = [fault for fault in faults if fault.kind not in _HARMLESS]
        # boot id -> run
        self._runs: dict[str, _Run] = {}
        self._arrivals: list[tuple[float, End, bytes]] = []

    def arrived(self, end: End, data: bytes) -> None:
        """A write has arrived at one end of a client's connection."""
        self._arrivals.append((self._cluster.world.now, end, data))

    def evicted(self, server: ServerNode, effect: Evicted, heard: float) -> None:
        """A server took a broker out, whose last sign of life that it has to know of had arrived then."""
        assert server.controller is not None
        run = self._runs.setdefault(server.controller.namesrv.boot_id, _Run(server))
        run.removals.append(_Removal(effect.key.broker_addr, effect.reason, self._cluster.world.now, heard))

    def differences(self) -> Iterator[str]:
        """What the report says and is not true, or the other way round."""
        analysis = Analysis(self._files())
        lives: dict[str, list[Life]] = defaultdict(list)
        for life in analysis.intervals:
            lives[life.boot.boot].append(life)
        known = _Known(self._arrivals)
        whole = [boot for boot in analysis.boots if _is_whole(boot)]
        # those that ran to the end have left in good order
        ended = {boot.boot for boot in whole if boot.lines[-1].event == "stop"}
        for server in self._cluster.servers:
            assert server.controller is not None
            if server.controller.namesrv.boot_id not in ended:
                yield f"the last run of {server.name} is not there as a whole"
        for boot in whole:
            run = self._runs.get(boot.boot)
            server = next(server for server in self._cluster.servers if server.name == boot.nameserver)
            told = _Told(server, boot.lines[-1].at)
            removals = [] if run is None else [each for each in run.removals if each.at <= told.until]
            gone = sorted(lives[boot.boot], key=lambda life: life.said.seq)
            yield from self._removal_differences(told, gone, removals)
            yield from self._death_differences(told, gone)
            clients = [client for client in analysis.clients if client.life.boot is boot]
            yield from self._client_differences(told, gone, clients, known)
        if not analysis.as_logged["exact"]:
            yield f"its replay of what was logged is {analysis.as_logged}"

    def _files(self) -> dict[str, list[bytes]]:
        found = {}
        for server in self._cluster.servers:
            folder = server.settings.heartbeat_log_path
            assert folder is not None
            for path in sorted(folder.glob("dt=*/hour=*/[!.]*")):
                data = path.read_bytes()
                found[str(path)] = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")
        return found

    def _removal_differences(self, told: "_Told", ended: list[Life], removals: list[_Removal]) -> Iterator[str]:
        found = [(life.broker.broker_addr, life.reason) for life in ended]
        if found != (expected := [(removal.addr, removal.reason) for removal in removals]):
            yield f"{told.name} removed {expected}, not {found}"
            return
        for life, removal in zip(ended, removals, strict=True):
            where = f"{life.broker.label} at {told.name}"
            slack = self._slack(told.name, removal.at)
            if abs(told.when(life.said.at) - removal.at) > slack:
                yield f"{where} was removed at {removal.at:.3f}, not {told.when(life.said.at):.3f}"
            if removal.reason == "silent" and abs(told.when(life.last_ok) - removal.heard) > self._slack(
                told.name, removal.heard
            ):
                yield f"{where} was heard last at {removal.heard:.3f}, not {told.when(life.last_ok):.3f}"

    def _slack(self, server: str, at: float) -> float:
        """By how much a server may have been late then: what it was stopped for, or all that it was slow."""
        machine = self._cluster.node(server).machine
        stops = [stop for stop in (*machine.freezes, *machine.hogs) if stop[0] - _SLACK_SECONDS <= at <= stop[1] + 1.0]
        busy = [fault for fault in self._faults if (fault.kind, *fault.where) == ("busy", server)]
        slow = [float(fault.value) for fault in busy if fault.at <= at <= fault.until + 1.0]
        return _SLACK_SECONDS + sum(end - begin for begin, end in stops) + _BUSY_PASSES * max(slow, default=0.0)

    def _death_differences(self, told: "_Told", ended: list[Life]) -> Iterator[str]:
        """How long it was dead lies between what the report says at least and at most."""
        for life in ended:
            if not life.is_unannounced or life.first_ok is None:
                continue
            broker = self._broker(life)
            removed, last_ok = told.when(life.said.at), told.when(life.last_ok)
            begin = last_ok - 2 * broker.settings.heartbeat_seconds
            touching = list(self._touching(told.name, broker.name, begin, removed))
            if len(touching) != 1 or touching[0].kind not in _DEATHS or touching[0].where != (broker.name,):
                continue
            dead, period = removed - touching[0].at, broker.settings.heartbeat_seconds
            # what the report takes for the period is shorter early in a life, or when topics changed
            usual = max(life.period / _PER_SECOND, period)
            least, most = life.upper / _PER_SECOND - usual, life.upper / _PER_SECOND
            if not least - _SLACK_SECONDS <= dead <= most * (1 + _DRIFT) + _SLACK_SECONDS:
                yield f"{broker.name} was dead for {dead:.3f} s at {told.name}, not {least:.3f} to {most:.3f} s"

    def _touching(self, one: str, other: str, begin: float, end: float) -> Iterator[Fault]:
        """Faults on two machines, or on the way between them, during some time."""
        for fault in self._faults:
            is_meant = {one, other} == set(fault.where) or fault.where in ((one,), (other,))
            if is_meant and fault.at <= end and fault.until + 1.0 >= begin:
                yield fault

    def _broker(self, life: Life) -> BrokerNode:
        return next(broker for broker in self._cluster.brokers if broker.address == life.broker.broker_addr)

    def _client_differences(
        self, told: "_Told", ended: list[Life], clients: list[ClientStaleness], known: "_Known"
    ) -> Iterator[str]:
        """Who had the route of a broker that was removed, and when it got one without."""
        said = {(client.life.said.seq, _peer(client), client.topic): client for client in clients}
        for life in ended:
            if life.is_unannounced:
                for (server, peer, topic), answers in known.answers.items():
                    if server == told.server.machine.address:
                        client = said.get((life.said.seq, peer, topic))
                        difference = self._client_difference(told, life, client, peer, answers)
                        if difference:
                            yield f"{peer}, {life.broker.label} of {topic} at {told.name}: {difference}"

    def _client_difference(
        self, told: "_Told", life: Life, client: ClientStaleness | None, peer: str, answers: Sequence["_Answer"]
    ) -> str | None:
        removed, member = told.when(life.said.at), (life.broker.broker_name, life.broker.broker_id)
        machine = self._cluster.world.network.machine_at(peer.rpartition(":")[0]).name
        if client is None or client.outcome != "seen":
            found = _learnt(answers, member, removed, removed)
            if found is None or found > told.until - _SLACK_SECONDS:
                return None
            if any(self._touching(told.name, machine, removed - 1.0, found)):
                return None
            return f"learnt it at {found:.3f}, and the report says {client and client.outcome}"
        # what was on its way when the server took the broker out arrived a little later
        at, found = told.when(client.at), _learnt(answers, member, removed, removed + _SLACK_SECONDS)
        is_quiet = not any(self._touching(told.name, machine, removed - 1.0, at + 1.0))
        if found is None:
            # unless the connection ended before it arrived
            return (
                f"never learnt it, and not at {at:.3f}" if is_quiet and answers[-1].at > at + _SLACK_SECONDS else None
            )
        if found < at - _SLACK_SECONDS or (is_quiet and found > at + _SLACK_SECONDS):
            return f"learnt it at {found:.3f}, not {at:.3f}"
        return None


def _is_whole(boot: Boot) -> bool:
    """Whether no line is missing before its last one: a power cut takes some, and a kill the last ones."""
    # in the order of time a scan may come before a line with a lower number: it has the moment at which it looked
    return sorted(line.seq for line in boot.lines) == list(range(1, len(boot.lines) + 1)) and not boot.of("dropped")


class _Told:
    """What a boot's log covers, and how to read its times."""

    def __init__(self, server: ServerNode, last: int) -> None:
        self.server = server
        self.name = server.name
        self.until = self.when(last)

    def when(self, at: int) -> float:
        return self.server.machine.world_time(at / _PER_SECOND)


class _Known:
    """What connections were told, from what arrived."""

    def __init__(self, arrivals: Sequence[tuple[float, End, bytes]]) -> None:
        # (server's address, client's end, topic) -> what it was told, in order
        self.answers: dict[tuple[str, str, str], list[_Answer]] = defaultdict(list)
        # (client's end, number of the question) -> topic that was asked for
        self._asked: dict[tuple[str, int | None], str] = {}
        for at, end, data in arrivals:
            is_answer = end.machine.kind == "client"
            peer = _name(end.get_extra_info("sockname" if is_answer else "peername"))
            server = (end.there if is_answer else end.machine).address
            for frame in FrameReader(1 << 20).receive_data(data):
                self._take(at, server, peer, decode_frame(frame))

    def _take(self, at: float, server: str, peer: str, command: RemotingCommand) -> None:
        if not command.is_response:
            if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                self._asked[peer, command.opaque] = (command.ext_fields or {})["topic"]
            elif command.code == RequestCode.PULL_ROUTES:
                self._asked[peer, command.opaque] = ""
            return
        topic = self._asked.pop((peer, command.opaque), None)
        if topic is None or command.code not in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
            return
        if not topic:
            routes: Any = read_routes(command.body).routes
        else:
            routes = {topic: read_route(command.body) if command.code == ResponseCode.SUCCESS else None}
        for each, route in routes.items():
            self.answers[server, peer, each].append(_Answer(at, _members(route)))


def _members(route: TopicRouteData | None) -> frozenset[Member]:
    groups = [] if route is None else route.broker_datas
    return frozenset((group.broker_name, number) for group in groups for number in group.broker_addrs)


def _name(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _peer(client: ClientStaleness) -> str:
    return (client.client or "").partition("#")[0]


def _learnt(answers: Sequence[_Answer], member: Member, removed: float, latest: float) -> float | None:
    """When a connection that had a route with somebody who was then removed first got one without."""
    for before, after in pairwise(answers):
        if before.at <= latest and after.at > removed and member in before.members - after.members:
            return after.at
    return None
