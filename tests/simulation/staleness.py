"""Compares a staleness report on the servers' own heartbeat logs with the truth of the run.

The report is the plain-Python reference, with which both engines agree to the digit. The run knows when each sign of
life arrived, when each server removed a broker, when a process ended or was stopped, and the responses on each
connection.
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
from tests.spark_jobs.reference.registration_periods import ClientStaleness, RegistrationPeriod

# for moments that two sides observe: loop iterations, and connection latency
_SLACK_SECONDS: Final = 0.05
# the largest drift of a clock
_DRIFT: Final = 0.002
# faults after which a broker is dead and receives nothing
_DEATHS: Final = frozenset({"kill", "power", "freeze"})
# faults without an effect on heartbeats and responses
_HARMLESS: Final = frozenset({"topic", "clock"})
# iterations of a slow server between an arrival and its effect
_BUSY_ITERATIONS: Final = 30
_PER_SECOND: Final = 1000 * MICROSECONDS

# broker name, id
Member = tuple[str | None, int | None]


@dataclass(slots=True)
class _Removal:
    """The removal of a broker by a server."""

    addr: str
    reason: str
    at: float
    # arrival of the last sign of life that the server has to know of
    last_seen: float


@dataclass(slots=True)
class _Boot:
    """One boot of a server."""

    server: ServerNode
    removals: list[_Removal] = field(default_factory=list)


@dataclass(slots=True)
class _Response:
    """The members of a topic's route in a response, and its arrival."""

    at: float
    members: frozenset[Member]


class StalenessCheck:
    """Observes a run and compares the report at its end."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault]) -> None:
        self._cluster = cluster
        self._faults = [fault for fault in faults if fault.kind not in _HARMLESS]
        # boot id -> boot
        self._boots: dict[str, _Boot] = {}
        self._arrivals: list[tuple[float, End, bytes]] = []

    def arrived(self, end: End, data: bytes) -> None:
        """Record a write that has arrived at one end of a client's connection."""
        self._arrivals.append((self._cluster.world.now, end, data))

    def evicted(self, server: ServerNode, effect: Evicted, last_seen: float) -> None:
        """Record the removal of a broker whose last sign of life arrived at this time."""
        assert server.controller is not None
        run = self._boots.setdefault(server.controller.namesrv.boot_id, _Boot(server))
        run.removals.append(_Removal(effect.key.broker_addr, effect.reason, self._cluster.world.now, last_seen))

    def differences(self) -> Iterator[str]:
        """Differences between the report and the truth."""
        analysis = Analysis(self._files())
        periods: dict[str, list[RegistrationPeriod]] = defaultdict(list)
        for period in analysis.intervals:
            periods[period.boot.boot].append(period)
        known = _Responses(self._arrivals)
        whole = [boot for boot in analysis.boots if _is_whole(boot)]
        # boots whose logs are complete and end with a stop
        ended = {boot.boot for boot in whole if boot.lines[-1].event == "stop"}
        for server in self._cluster.servers:
            assert server.controller is not None
            if server.controller.namesrv.boot_id not in ended:
                yield f"the log of the last boot of {server.name} is incomplete"
        for boot in whole:
            run = self._boots.get(boot.boot)
            server = next(server for server in self._cluster.servers if server.name == boot.nameserver)
            log = _BootLog(server, boot.lines[-1].at)
            removals = [] if run is None else [each for each in run.removals if each.at <= log.until]
            gone = sorted(periods[boot.boot], key=lambda period: period.last_line.seq)
            yield from self._removal_differences(log, gone, removals)
            yield from self._death_differences(log, gone)
            clients = [client for client in analysis.clients if client.period.boot is boot]
            yield from self._client_differences(log, gone, clients, known)
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

    def _removal_differences(
        self, log: "_BootLog", ended: list[RegistrationPeriod], removals: list[_Removal]
    ) -> Iterator[str]:
        found = [(period.broker.broker_addr, period.reason) for period in ended]
        if found != (expected := [(removal.addr, removal.reason) for removal in removals]):
            yield f"{log.name} removed {expected}, not {found}"
            return
        for period, removal in zip(ended, removals, strict=True):
            where = f"{period.broker.label} at {log.name}"
            slack = self._slack(log.name, removal.at)
            if abs(log.when(period.last_line.at) - removal.at) > slack:
                yield f"{where} was removed at {removal.at:.3f}, not {log.when(period.last_line.at):.3f}"
            if removal.reason == "silent" and abs(log.when(period.last_ok) - removal.last_seen) > self._slack(
                log.name, removal.last_seen
            ):
                yield f"{where} was last seen at {removal.last_seen:.3f}, not {log.when(period.last_ok):.3f}"

    def _slack(self, server: str, at: float) -> float:
        """The time by which a server may have been late: its stops, or its slow iterations."""
        machine = self._cluster.node(server).machine
        stops = [stop for stop in (*machine.freezes, *machine.hogs) if stop[0] - _SLACK_SECONDS <= at <= stop[1] + 1.0]
        busy = [fault for fault in self._faults if (fault.kind, *fault.where) == ("busy", server)]
        slow = [float(fault.value) for fault in busy if fault.at <= at <= fault.until + 1.0]
        return _SLACK_SECONDS + sum(end - begin for begin, end in stops) + _BUSY_ITERATIONS * max(slow, default=0.0)

    def _death_differences(self, log: "_BootLog", ended: list[RegistrationPeriod]) -> Iterator[str]:
        """The time for which a broker was dead is within the bounds of the report."""
        for period in ended:
            if not period.is_unannounced or period.first_ok is None:
                continue
            broker = self._broker(period)
            removed, last_ok = log.when(period.last_line.at), log.when(period.last_ok)
            begin = last_ok - 2 * broker.settings.heartbeat_seconds
            touching = list(self._touching(log.name, broker.name, begin, removed))
            if len(touching) != 1 or touching[0].kind not in _DEATHS or touching[0].where != (broker.name,):
                continue
            dead, interval = removed - touching[0].at, broker.settings.heartbeat_seconds
            # the report's heartbeat interval is shorter early in a registration period, or after changed topics
            usual = max(period.usual_interval / _PER_SECOND, interval)
            least, most = period.upper / _PER_SECOND - usual, period.upper / _PER_SECOND
            if not least - _SLACK_SECONDS <= dead <= most * (1 + _DRIFT) + _SLACK_SECONDS:
                yield f"{broker.name} was dead for {dead:.3f} s at {log.name}, not {least:.3f} to {most:.3f} s"

    def _touching(self, one: str, other: str, begin: float, end: float) -> Iterator[Fault]:
        """Faults of two machines, or on the way between them, in a time."""
        for fault in self._faults:
            is_meant = {one, other} == set(fault.where) or fault.where in ((one,), (other,))
            if is_meant and fault.at <= end and fault.until + 1.0 >= begin:
                yield fault

    def _broker(self, period: RegistrationPeriod) -> BrokerNode:
        return next(broker for broker in self._cluster.brokers if broker.address == period.broker.broker_addr)

    def _client_differences(
        self, log: "_BootLog", ended: list[RegistrationPeriod], clients: list[ClientStaleness], known: "_Responses"
    ) -> Iterator[str]:
        """Clients with the route of a removed broker, and the time at which they got one without it."""
        reported = {(client.period.last_line.seq, _peer(client), client.topic): client for client in clients}
        for period in ended:
            if period.is_unannounced:
                for (server, peer, topic), responses in known.responses.items():
                    if server == log.server.machine.address:
                        client = reported.get((period.last_line.seq, peer, topic))
                        difference = self._client_difference(log, period, client, peer, responses)
                        if difference:
                            yield f"{peer}, {period.broker.label} of {topic} at {log.name}: {difference}"

    def _client_difference(
        self,
        log: "_BootLog",
        period: RegistrationPeriod,
        client: ClientStaleness | None,
        peer: str,
        responses: Sequence["_Response"],
    ) -> str | None:
        removed, member = log.when(period.last_line.at), (period.broker.broker_name, period.broker.broker_id)
        machine = self._cluster.world.network.machine_at(peer.rpartition(":")[0]).name
        if client is None or client.outcome != "seen":
            found = _time_without(responses, member, removed, removed)
            if found is None or found > log.until - _SLACK_SECONDS:
                return None
            if any(self._touching(log.name, machine, removed - 1.0, found)):
                return None
            return f"got a route without it at {found:.3f}, not in the report ({client and client.outcome})"
        # responses that were on their way at the removal arrive a little later
        at, found = log.when(client.at), _time_without(responses, member, removed, removed + _SLACK_SECONDS)
        is_quiet = not any(self._touching(log.name, machine, removed - 1.0, at + 1.0))
        if found is None:
            # the connection may have ended before the response arrived
            return (
                f"never got a route without it, and not at {at:.3f}"
                if is_quiet and responses[-1].at > at + _SLACK_SECONDS
                else None
            )
        if found < at - _SLACK_SECONDS or (is_quiet and found > at + _SLACK_SECONDS):
            return f"got a route without it at {found:.3f}, not {at:.3f}"
        return None


def _is_whole(boot: Boot) -> bool:
    """Return true if no line is missing before the last one: power cuts lose lines anywhere, kills the last ones."""
    # ordered by time, a scan may precede a line with a lower number, since its time is that of its start
    return sorted(line.seq for line in boot.lines) == list(range(1, len(boot.lines) + 1)) and not boot.of("dropped")


class _BootLog:
    """The time that the log of a boot covers, and the conversion of its times."""

    def __init__(self, server: ServerNode, last: int) -> None:
        self.server = server
        self.name = server.name
        self.until = self.when(last)

    def when(self, at: int) -> float:
        return self.server.machine.world_time(at / _PER_SECOND)


class _Responses:
    """Responses on each connection, decoded from the arrived data."""

    def __init__(self, arrivals: Sequence[tuple[float, End, bytes]]) -> None:
        # (server's address, client's end, topic) -> responses in order
        self.responses: dict[tuple[str, str, str], list[_Response]] = defaultdict(list)
        # (client's end, opaque of the request) -> requested topic
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
            self.responses[server, peer, each].append(_Response(at, _members(route)))


def _members(route: TopicRouteData | None) -> frozenset[Member]:
    groups = [] if route is None else route.broker_datas
    return frozenset((group.broker_name, number) for group in groups for number in group.broker_addrs)


def _name(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _peer(client: ClientStaleness) -> str:
    return (client.client or "").partition("#")[0]


def _time_without(responses: Sequence[_Response], member: Member, removed: float, latest: float) -> float | None:
    """When a connection with a route that had a removed broker first got one without it."""
    for before, after in pairwise(responses):
        if before.at <= latest and after.at > removed and member in before.members - after.members:
            return after.at
    return None
