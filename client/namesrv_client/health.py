"""The health model: values that servers reported, in; the problems of servers and broker groups, out.

The console and `namesrvctl` fill in the reports, so that both name the same problems. The module has no clock and no
I/O; durations are relative to the moment of the judgement.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, cast

from namesrv_remoting.aio.tls import is_tls_failure
from namesrv_remoting.bodies.extensions import Event, LiveBroker, ServerInfo
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.errors import (
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    TlsRequiredError,
)
from namesrv_remoting.health import LEVELS, SILENT_SHARE, GroupHealth, Kind, Level, group_health

# Frozen: the server does not respond in time, although no error says that it is unreachable.
# Tls_failed: either side refuses the other's TLS, or only one side uses TLS.
# Protocol_error: bytes that violate RocketMQ's protocol arrived, as from a port of another program.
ServerState = Literal[
    "asking",
    "ready",
    "not_ready",
    "draining",
    "answers",
    "refuses",
    "tls_failed",
    "protocol_error",
    "frozen",
    "unreachable",
]

# Cluster and broker name.
GroupKey = tuple[str, str]
# Cluster, broker name and broker id.
InstanceKey = tuple[str, str, int]

# Within this time a broker, which registers at each heartbeat interval, has registered with every server; with some
# reserve.
REGISTERING_SECONDS: Final = 35.0

# Shares of a broker's expiry below which `top` and the console show what is left of it in yellow and in red. The
# console's static/console.js has the same numbers.
YELLOW_SHARE: Final = 0.7
RED_SHARE: Final = 0.25

KINDS: Final[tuple[Kind, ...]] = tuple(LEVELS)
# Problems of a whole group, which affect all its write queues.
_OF_QUEUES: Final = frozenset[Kind]({"group_gone", "without_master", "silent_master", "write_removed"})
_OF_SERVERS: Final[Mapping[ServerState, Kind]] = {
    "asking": "server_asked",
    "unreachable": "server_unreachable",
    "protocol_error": "server_unreachable",
    "frozen": "server_frozen",
    "tls_failed": "tls_failed",
    "refuses": "server_refuses",
}
# Commands that look closer at a server.
_LOOKS: Final[Mapping[Kind, str]] = {
    "server_refuses": "whoami",
    "not_reported": "whoami",
    "disk_failing": "config show",
    "memory_budget": "connections",
    "certificate_expires": "config show",
}
_OF_GROUPS: Final[Mapping[GroupHealth, Kind]] = {
    GroupHealth.WITHOUT_MASTER: "without_master",
    GroupHealth.SILENT_MASTER: "silent_master",
}


class Broker(NamedTuple):
    """A live broker, as one server reports it."""

    key: InstanceKey
    # None from Apache's server, which does not report them.
    silent_seconds: float | None = None
    expiry_seconds: float | None = None
    topics: int = 0
    is_write_removed: bool = False

    @property
    def silence(self) -> float | None:
        """Share of the expiry that has passed since the last heartbeat."""
        if self.silent_seconds is None or not self.expiry_seconds:
            return None
        return self.silent_seconds / self.expiry_seconds


@dataclass(frozen=True, slots=True)
class Server:
    """The reports of one server."""

    address: str
    state: ServerState
    # Reason of the state, in the server's or the operating system's words.
    why: str = ""
    # Duration of a state without responses; None if unknown.
    state_seconds: float | None = None
    info: ServerInfo | None = None
    # None: the brokers of the server are unknown.
    brokers: Sequence[Broker] | None = None
    # Reason that a part of the report is missing.
    refusal: str = ""
    # Broker -> seconds since the server removed it last.
    removals: Mapping[InstanceKey, float] = field(default_factory=dict)
    # True: brokers may not have registered with the server since its start.
    is_starting: bool = False


class Affected(NamedTuple):
    """The write queues of a broker group, among all write queues of its topics."""

    write_queues: int
    all_write_queues: int
    topics: int
    # The name of the topic if the group has only one; else empty.
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Gone:
    """A broker that has left all servers."""

    key: InstanceKey
    # Time at which the last server removed it, on the observer's clock.
    left_at: float
    # Reason in the server's event, for example `disconnected`; empty if the event is unknown.
    reason: str
    topics: int
    # The queues of its group before it left; None for a slave, or without routes.
    affected: Affected | None = None

    @property
    def is_planned(self) -> bool:
        """True for a broker that unregistered itself."""
        return self.reason == "unregistered"

    @property
    def group(self) -> GroupKey:
        """The broker group."""
        return self.key[:2]


class Missing(NamedTuple):
    """A broker that some servers lack."""

    key: InstanceKey
    servers: tuple[str, ...]
    topics: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `kind` and `subject` identify it while it lasts."""

    kind: Kind
    # A server's address, a broker group or a broker; empty for disagreements, which have a page of their own.
    subject: str
    # Addresses of the servers that report the problem, or lack the broker.
    servers: tuple[str, ...] = ()
    # Reason in a server's or the operating system's words; empty without one.
    why: str = ""
    # Causes that a server reports beside the reason, whose words may change with time.
    causes: tuple[str, ...] = ()
    # Duration as far as it is known.
    seconds: float | None = field(default=None, compare=False)
    # Number of topics of the broker or group, or number of disagreements.
    count: int = 0
    # None if the routes are unknown.
    affected: Affected | None = None
    # The broker group of the problem; None for a server's.
    group: GroupKey | None = None

    @property
    def key(self) -> tuple[Kind, str]:
        """The identity of the problem."""
        return self.kind, self.subject

    @property
    def level(self) -> Level:
        """How bad the problem is."""
        return LEVELS[self.kind]

    @property
    def command(self) -> str:
        """The command that looks closer; empty without one."""
        if self.kind == "server_asked":
            return ""
        if self.kind in ("missing_broker", "disagreement"):
            return "namesrvctl diff"
        if self.group is not None:
            return f"namesrvctl brokers --name {shlex.quote(self.group[1])}"
        return f"namesrvctl -s {self.subject} {_LOOKS.get(self.kind, 'status')}"


def liveness(live: LiveBroker) -> str:
    """The liveness of a broker on one server: fine, late or overdue; unknown on Apache's server."""
    age, left, expiry = live.age_seconds, live.expires_in_seconds, live.expiry_seconds
    if age is None or left is None or expiry is None:
        return "unknown"
    if left < 0:
        return "overdue"
    return "late" if age > expiry * SILENT_SHARE else "fine"


def state_of(info: ServerInfo | None) -> ServerState:
    """The state of a server that responds; None is Apache's server, which reports no state."""
    if info is None:
        return "answers"
    return "draining" if info.draining else "ready" if info.ready else "not_ready"


def is_starting(info: ServerInfo | None, seconds_ago: float = 0.0) -> bool:
    """True if a server was not ready so many seconds ago, or had started so recently that brokers may be missing."""
    return info is not None and (not info.ready or info.uptime_seconds + seconds_ago < REGISTERING_SECONDS)


def failure_state(error: RemotingError) -> ServerState:
    """The state of a server whose last request failed."""
    if isinstance(error, TlsRequiredError) or is_tls_failure(error.__cause__):
        return "tls_failed"
    for violation in (error, error.__cause__):
        if isinstance(violation, RemoteProtocolError):
            return "tls_failed" if violation.reason == "tls" else "protocol_error"
    if isinstance(error, ResponseError):
        return "refuses"
    return "frozen" if isinstance(error, RequestTimeoutError) else "unreachable"


def broker_of(live: LiveBroker, silent_seconds: float | None) -> Broker:
    """A broker with this time since its last heartbeat; None if the server does not report it."""
    key = live.cluster, live.broker_name, live.broker_id
    return Broker(key, silent_seconds, live.expiry_seconds, live.topics or 0, bool(live.write_removed))


def instance_of(event: Event) -> InstanceKey | None:
    """The broker of an event; None for an event that names no broker."""
    cluster, name, number = (event.fields.get(field) for field in ("cluster", "broker_name", "broker_id"))
    return (str(cluster), str(name), number) if isinstance(number, int) else None


def removal_events(events: Iterable[Event]) -> dict[InstanceKey, Event]:
    """The event of the last removal of each broker by a server, whose events are in order."""
    return {key: one for one in events if one.event == "evict" and (key := instance_of(one)) is not None}


def removal_reason(event: Event) -> str:
    """The reason of a removal, for example `disconnected`; empty if the event has none."""
    return str(event.fields.get("reason") or "")


def removals(events: Iterable[Event], info: ServerInfo) -> dict[InstanceKey, float]:
    """The seconds since the last removal of each broker by a server, whose events are in order."""
    now_ms = info.wall_ms
    return {
        key: max(0.0, (now_ms - event.ts_ms) / 1000)
        for key, event in removal_events(events).items()
        if now_ms is not None and event.ts_ms is not None
    }


def missing_brokers(servers: Iterable[Server]) -> list[Missing]:
    """The brokers that some servers lack, as far as one look shows; a server that is not ready may lack brokers."""
    reports = {
        one.address: {broker.key: broker.topics for broker in one.brokers}
        for one in servers
        if one.brokers is not None and one.state in ("ready", "answers")
    }
    topics: dict[InstanceKey, int] = {}
    for brokers in reports.values():
        for key, count in brokers.items():
            # Apache's server reports no number of topics.
            topics[key] = max(count, topics.get(key, 0))
    return [
        Missing(key, lacking, topics[key])
        for key in sorted(topics)
        if (lacking := tuple(server for server, brokers in reports.items() if key not in brokers))
    ]


def problems(
    servers: Sequence[Server],
    *,
    gone: Iterable[Gone] = (),
    unknown: Collection[GroupKey] = (),
    missing: Iterable[Missing] = (),
    disagreements: int = 0,
) -> list[Problem]:
    """All problems, worst first.

    `unknown` are the groups with a broker that only servers without a response had: the broker may still be there.
    """
    own = [problem for one in servers for problem in _of_server(one)]
    if any(one.brokers for one in servers):
        # A server without any broker lacks those of the others, which `missing` has.
        own = [one for one in own if one.kind != "no_brokers"]
    unordered = [
        *own,
        *_of_groups(servers),
        *_of_gone(servers, gone, unknown),
        *(
            Problem("missing_broker", subject_of(one.key), one.servers, count=one.topics, group=one.key[:2])
            for one in missing
        ),
        *([Problem("disagreement", "", count=disagreements)] if disagreements else []),
        *_of_permissions(servers),
    ]
    return sorted(unordered, key=lambda one: (KINDS.index(one.kind), one.subject))


def subject_of(key: InstanceKey | GroupKey) -> str:
    """The subject of a problem of a broker or group, different for each: a slash within a name is written as %2F."""
    # The cluster of a group without brokers may be unknown.
    return "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in key if part != "")


def names_without_shares(problems: Iterable[Problem]) -> set[str]:
    """The names of broker groups whose affected write queues have to be counted in the routes."""
    return {one.group[1] for one in problems if one.group and one.kind in _OF_QUEUES and one.affected is None}


def with_shares(listed: Iterable[Problem], shares: Mapping[str, Affected]) -> list[Problem]:
    """The problems with the affected queues; `shares` are by broker name."""
    return [
        replace(one, affected=one.affected or shares.get(one.group[1])) if one.group and one.kind in _OF_QUEUES else one
        for one in listed
    ]


def write_shares(routes: Iterable[tuple[str, TopicRouteData]], names: Iterable[str]) -> dict[str, Affected]:
    """The write queues of each of these broker groups, among those of all its topics."""
    wanted = frozenset(names)
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    topics: dict[str, list[str]] = {}
    for topic, route in routes:
        here = {queues.broker_name: queues.write_queue_nums for queues in route.queue_datas}
        for name in wanted & here.keys():
            own[name] += here[name]
            total[name] += sum(here.values())
            topics.setdefault(name, []).append(topic)
    return {
        name: Affected(own[name], total[name], len(holders), holders[0] if len(holders) == 1 else "")
        for name, holders in topics.items()
    }


def _of_server(server: Server) -> Iterator[Problem]:
    if kind := _OF_SERVERS.get(server.state):
        yield Problem(kind, server.address, why=server.why, seconds=server.state_seconds)
        return
    if server.refusal:
        yield Problem("not_reported", server.address, why=server.refusal)
    for one in () if server.info is None else server.info.problems:
        # A newer server may report a problem that this version does not know.
        if one.kind in LEVELS:
            yield Problem(cast("Kind", one.kind), server.address, why=one.why, causes=tuple(one.causes))
    # Apache's server reports no problems of its own.
    if server.info is None and server.brokers is not None and not server.brokers:
        yield Problem("no_brokers", server.address)


def _of_groups(servers: Collection[Server]) -> Iterator[Problem]:
    with_master = {broker.key[:2] for one in servers for broker in one.brokers or () if broker.key[2] == MASTER_ID}
    by_group: dict[tuple[Kind, GroupKey], Problem] = {}
    for server in servers:
        for group, brokers in _groups(server).items():
            health = group_health({number: broker.silence for number, broker in brokers.items()})
            kind = _OF_GROUPS.get(health)
            if kind is None:
                continue
            # Slaves may register before their master with a server that starts. Until it is ready, it gives no routes.
            is_awaited = server.is_starting and (server.state == "not_ready" or group in with_master)
            if kind == "without_master" and is_awaited:
                continue
            old = by_group.get((kind, group), Problem(kind, subject_of(group), group=group))
            by_group[kind, group] = replace(
                old,
                servers=(*old.servers, server.address),
                seconds=_longest(old.seconds, _duration(kind, server, group, brokers)),
                count=max(old.count, *(broker.topics for broker in brokers.values())),
            )
    yield from by_group.values()


def _duration(kind: Kind, server: Server, group: GroupKey, brokers: Mapping[int, Broker]) -> float | None:
    if kind == "silent_master":
        return brokers[MASTER_ID].silent_seconds
    return server.removals.get((*group, MASTER_ID))


def _longest(one: float | None, other: float | None) -> float | None:
    return max((seconds for seconds in (one, other) if seconds is not None), default=None)


def _groups(server: Server) -> dict[GroupKey, dict[int, Broker]]:
    groups: dict[GroupKey, dict[int, Broker]] = {}
    for broker in server.brokers or ():
        groups.setdefault(broker.key[:2], {})[broker.key[2]] = broker
    return groups


def _of_gone(servers: Iterable[Server], gone: Iterable[Gone], unknown: Collection[GroupKey]) -> Iterator[Problem]:
    present = {broker.key[:2] for server in servers for broker in server.brokers or ()}.union(unknown)
    groups: dict[GroupKey, list[Gone]] = {}
    for one in gone:
        if not one.is_planned:
            groups.setdefault(one.group, []).append(one)
    for group, members in groups.items():
        if group not in present:
            topics = max(one.topics for one in members)
            affected = next((one.affected for one in members if one.affected is not None), None)
            yield Problem(
                "group_gone", subject_of(group), why=members[-1].reason, count=topics, affected=affected, group=group
            )
            continue
        for one in members:
            yield Problem("broker_gone", subject_of(one.key), why=one.reason, count=one.topics, group=group)


def _of_permissions(servers: Iterable[Server]) -> Iterator[Problem]:
    by_group: dict[GroupKey, Problem] = {}
    for server in servers:
        for group, brokers in sorted(_groups(server).items()):
            if any(broker.is_write_removed for broker in brokers.values()):
                old = by_group.get(group, Problem("write_removed", subject_of(group), group=group))
                topics = max(old.count, *(broker.topics for broker in brokers.values()))
                by_group[group] = replace(old, servers=(*old.servers, server.address), count=topics)
    yield from by_group.values()
