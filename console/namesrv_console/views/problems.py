"""Problems of servers and broker groups, and the verdict on every page: the worst level and the number of each kind."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from namesrv_client.ctl.comparison import PRESENT
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement
from namesrv_remoting.group_health import GroupHealth, group_health

# Worst first. Unknown is worse than a warning: what the console does not know may be critical.
Level = Literal["critical", "unknown", "warning", "good"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

# Every kind of problem, worst first.
Kind = Literal[
    "group_gone",
    "without_master",
    "silent_master",
    "server_unreachable",
    "server_refuses",
    "not_reported",
    "server_asked",
    "broker_gone",
    "server_not_ready",
    "missing_broker",
    "disagreement",
    "write_removed",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_CRITICAL: Final = frozenset[Kind]({"group_gone", "without_master", "silent_master", "server_unreachable"})
# Kinds for which the console lacks the reports that a judgement needs.
_UNKNOWN: Final = frozenset[Kind]({"server_refuses", "not_reported", "server_asked"})
_OF_GROUPS: Final[Mapping[GroupHealth, Kind]] = {
    GroupHealth.WITHOUT_MASTER: "without_master",
    GroupHealth.SILENT_MASTER: "silent_master",
}

# Cluster and broker name.
GroupKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Gone:
    """A broker that has left all servers."""

    key: BrokerKey
    # Time at which the last server removed it, on the console's clock.
    left_at: float
    # Reason in the server's event, for example `disconnected`; empty if the event is unknown.
    reason: str
    topics: int

    @property
    def is_planned(self) -> bool:
        """True for a broker that unregistered itself."""
        return self.reason == "unregistered"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `kind` and `subject` identify it while it lasts."""

    kind: Kind
    # A server's address, a broker group or a broker; empty for disagreements, which have a page of their own.
    subject: str
    # Addresses of the servers that report the problem.
    servers: tuple[str, ...] = ()
    # Reason in a server's or the operating system's words; empty without one.
    why: str = ""
    # Number of affected topics, or of disagreements.
    count: int = 0
    # The broker group of the problem; None for a server's.
    group: GroupKey | None = None

    @property
    def level(self) -> Level:
        """How bad the problem is."""
        if self.kind in _CRITICAL:
            return "critical"
        return "unknown" if self.kind in _UNKNOWN else "warning"

    @property
    def command(self) -> str:
        """The command that looks closer; empty if there is none."""
        if self.kind in ("server_asked", "broker_gone"):
            return ""
        if self.group is not None:
            return f"namesrvctl brokers --name {shlex.quote(self.group[1])}"
        if self.kind in ("missing_broker", "disagreement"):
            return "namesrvctl diff"
        return f"namesrvctl -s {self.subject} {'whoami' if self.level == 'unknown' else 'status'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sum of all problems."""

    level: Level
    # Number of problems of each kind, worst first.
    counts: tuple[tuple[Kind, int], ...]
    brokers: int
    topics: int
    servers: int
    # True if the servers do not even differ in what is expected to differ for a while.
    agrees: bool


def problems(
    cluster: Cluster, disagreements: Sequence[Disagreement], gone: Iterable[Gone], now: float
) -> list[Problem]:
    """All problems, worst first."""
    reporting = [view for view in cluster.servers if reports_brokers(view)]
    found = [
        *(problem for view in cluster.servers for problem in _of_server(view)),
        *_of_groups(reporting, now),
        *_of_gone(reporting, gone),
        *_of_disagreements(disagreements),
        *_of_permissions(reporting),
    ]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.subject))


def verdict(cluster: Cluster, found: Sequence[Problem], disagreements: Sequence[Disagreement]) -> Verdict:
    """The verdict on a cluster with these problems."""
    counts = Counter(one.kind for one in found)
    levels = {one.level for one in found}
    level: Level = next((level for level in LEVELS if level in levels), "good")
    return Verdict(
        level,
        tuple((kind, counts[kind]) for kind in KINDS if kind in counts),
        len(cluster.broker_keys),
        len(cluster.topics),
        len(cluster.servers),
        not disagreements,
    )


def reports_brokers(view: ServerView) -> bool:
    """True if the brokers of a view are what the server has now."""
    return bool(view.is_reachable) and "brokers" not in view.refused


def _of_server(view: ServerView) -> Iterator[Problem]:
    where, state = view.address, view.state
    if state == "asking":
        yield Problem("server_asked", where)
    elif state == "unreachable":
        yield Problem("server_unreachable", where, why=view.error or "")
    elif state == "refuses":
        yield Problem("server_refuses", where, why=view.error or "")
    elif state in ("not_ready", "draining"):
        yield Problem("server_not_ready", where, why=(view.info and view.info.readiness) or "")
    if view.is_reachable and view.refused:
        yield Problem("not_reported", where, why=next(iter(view.refused.values())))


def _of_groups(reporting: Sequence[ServerView], now: float) -> Iterator[Problem]:
    affected: dict[tuple[Kind, GroupKey], list[str]] = {}
    topics: Counter[GroupKey] = Counter()
    for view in reporting:
        for group, brokers in _groups(view).items():
            health = group_health({number: _silence(seen, now) for number, seen in brokers.items()})
            if kind := _OF_GROUPS.get(health):
                affected.setdefault((kind, group), []).append(view.address)
                topics[group] = max(topics[group], *(seen.live.topics or 0 for seen in brokers.values()))
    for (kind, group), servers in affected.items():
        yield Problem(kind, "/".join(group), tuple(servers), count=topics[group], group=group)


def _groups(view: ServerView) -> dict[GroupKey, dict[int, BrokerSeen]]:
    groups: dict[GroupKey, dict[int, BrokerSeen]] = {}
    for key, seen in view.brokers.items():
        groups.setdefault((key.cluster, key.broker_name), {})[key.broker_id] = seen
    return groups


def _silence(seen: BrokerSeen, now: float) -> float | None:
    if seen.last_seen_at is None or not seen.live.expiry_seconds:
        return None
    return (now - seen.last_seen_at) / seen.live.expiry_seconds


def _of_gone(reporting: Sequence[ServerView], gone: Iterable[Gone]) -> Iterator[Problem]:
    left = [one for one in gone if not one.is_planned]
    present = {(key.cluster, key.broker_name) for view in reporting for key in view.brokers}
    groups: dict[GroupKey, list[Gone]] = {}
    for one in left:
        groups.setdefault((one.key.cluster, one.key.broker_name), []).append(one)
    for group, members in groups.items():
        if group not in present:
            topics = max(one.topics for one in members)
            yield Problem("group_gone", "/".join(group), why=members[-1].reason, count=topics, group=group)
            continue
        for one in members:
            yield Problem("broker_gone", "/".join(map(str, one.key)), why=one.reason, count=one.topics, group=group)


def _of_disagreements(disagreements: Sequence[Disagreement]) -> Iterator[Problem]:
    others = 0
    for one in disagreements:
        if one.reason is not None:
            continue
        difference = one.difference
        if difference.kind == "broker" and difference.fact == PRESENT:
            lacking = tuple(server for server, value in difference.values.items() if not value)
            yield Problem("missing_broker", difference.name, lacking)
        else:
            others += 1
    if others:
        yield Problem("disagreement", "", count=others)


def _of_permissions(reporting: Sequence[ServerView]) -> Iterator[Problem]:
    servers: dict[GroupKey, list[str]] = {}
    for view in reporting:
        for group in sorted(
            {(key.cluster, key.broker_name) for key, it in view.brokers.items() if it.live.write_wiped}
        ):
            servers.setdefault(group, []).append(view.address)
    for group, where in servers.items():
        yield Problem("write_removed", "/".join(group), tuple(where), group=group)
