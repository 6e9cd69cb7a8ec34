"""The console's views as reports for the health model, and the verdict on every page."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, get_args

from namesrv_client.health import KINDS, Broker, Missing, Problem, Server, broker_of, removals, subject_of
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement, same_servers
from namesrv_remoting.health import Kind, Level

# All levels. Unknown is worse than a warning: what the console does not know may be critical.
WORST_FIRST: Final[tuple[Level, ...]] = get_args(Level)

K = TypeVar("K", bound=Hashable)

# Acknowledged: all problems are acknowledged, so that the verdict is neither good nor an alarm.
VerdictLevel = Level | Literal["acknowledged"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sum of all problems."""

    level: VerdictLevel
    # Number of problems of each kind, worst first; without acknowledged problems unless all are acknowledged.
    counts: tuple[tuple[Kind, int], ...]
    brokers: int
    topics: int
    servers: int
    # True if the servers have no difference, not even an expected one.
    agrees: bool
    # True if there are several servers, none of them under two addresses, and all of them were compared.
    is_compared: bool
    # Number of acknowledged problems.
    acknowledged: int = 0


def verdict(
    cluster: Cluster,
    found: Sequence[Problem],
    disagreements: Sequence[Disagreement],
    acknowledged: Collection[tuple[Kind, str]] = (),
    *,
    topics: int = 0,
) -> Verdict:
    """The verdict on a cluster with these problems and so many topics; acknowledged problems are no alarm."""
    new = [one for one in found if one.key not in acknowledged]
    level: VerdictLevel = "acknowledged" if found and not new else worst(one.level for one in new)
    counts = Counter(one.kind for one in new or found)
    return Verdict(
        level,
        tuple((kind, counts[kind]) for kind in KINDS if kind in counts),
        len(cluster.broker_keys),
        topics,
        len(cluster.servers),
        not disagreements,
        cluster.compared == len(cluster.servers) > 1 and not same_servers(cluster.servers),
        len(found) - len(new),
    )


def worst(levels: Iterable[Level]) -> Level:
    """The worst of these levels; good without any."""
    return min(levels, key=WORST_FIRST.index, default="good")


def worst_by(key: Callable[[Problem], K], found: Iterable[Problem]) -> dict[K, Level]:
    """The level of the worst of the problems with the same key."""
    levels: dict[K, Level] = {}
    for one in found:
        levels[key(one)] = worst([one.level, levels.get(key(one), "good")])
    return levels


def most_urgent(found: Iterable[Problem], acknowledged: Collection[tuple[Kind, str]], most: int) -> list[Problem]:
    """At most so many problems: those without an acknowledgement first, and of these the worst."""
    return sorted(found, key=lambda one: one.key in acknowledged)[:most]


def report_of(view: ServerView, now: float) -> Server:
    """The report of a server for the health model."""
    info = view.info
    return Server(
        view.address,
        view.state,
        why=view.error or "",
        state_seconds=None if view.failure is None else now - view.failure.since,
        info=info if view.is_reachable else None,
        brokers=[_broker(seen, now) for seen in view.brokers.values()] if view.reports_brokers else None,
        refusal=next(iter(view.refused.values()), "") if view.is_reachable else "",
        removals={} if info is None else removals(view.events, info),
        is_starting=view.is_starting(now),
    )


def missing_among(disagreements: Iterable[Disagreement], cluster: Cluster) -> tuple[list[Missing], int]:
    """The brokers that a server lacks unexpectedly, and the number of all other unexpected disagreements."""
    unexpected = [one for one in disagreements if one.reason is None]
    lacking = {
        one.difference.name: tuple(
            server for server, value in one.difference.values.items() if not value and server not in one.blamed
        )
        for one in unexpected
        if one.is_missing_broker
    }
    keys = {subject_of(key): key for key in cluster.broker_keys} if lacking else {}
    missing = [Missing(keys[name], servers, _topic_count(keys[name], cluster)) for name, servers in lacking.items()]
    return missing, len(unexpected) - len(missing)


def _topic_count(key: BrokerKey, cluster: Cluster) -> int:
    """The number of topics of a broker on the server that knows most."""
    return max((view.brokers[key].live.topics or 0 for view in cluster.servers if key in view.brokers), default=0)


def _broker(seen: BrokerSeen, now: float) -> Broker:
    return broker_of(seen.live, None if seen.last_seen_at is None else now - seen.last_seen_at)
