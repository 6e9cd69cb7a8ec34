"""Where servers disagree, since when, and which of that is to be expected."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from namesrv_client.ctl.comparison import PRESENT, Difference
from namesrv_console.state import BrokerKey, Cluster, ServerView
from namesrv_console.views.topics import Told, TopicTable

# starting: a server has just begun, and has yet to hear from brokers; registering: a broker tells one server after the
# other; leaving: the next scan of the server that still has it will evict it
Reason = Literal["starting", "registering", "leaving"]

# A broker registers with every server in this time, as often as it beats; with something to spare.
REGISTERING_SECONDS: Final = 35.0
# Between two scans, with something to spare.
LEAVING_SECONDS: Final = 12.0

# kind, name and fact of a difference
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A difference, and what is known of it."""

    difference: Difference
    # on the console's clock; None: it was there already when the console began
    since: float | None
    # None: nothing explains it
    reason: Reason | None = None
    # the servers that explain it
    blamed: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        """Which one it is, as long as it lasts."""
        return self.difference.kind, self.difference.name, self.difference.fact

    def document(self, now: float) -> dict[str, Any]:
        """Its members, for programs."""
        one = self.difference
        return {
            "kind": one.kind,
            "name": one.name,
            "fact": one.fact,
            "values": dict(one.values),
            "seconds": None if self.since is None else round(now - self.since, 3),
            "expected": self.reason,
        }


def disagreements(
    cluster: Cluster,
    told: Mapping[str, Told],
    table: TopicTable,
    known_since: Mapping[Key, float | None] | None,
    now: float,
) -> list[Disagreement]:
    """All about which servers that answer disagree: brokers first.

    `known_since` has the `since` of those that were there the last time, and is None the first time.
    """
    views = {view.address: view for view in cluster.servers if view.is_reachable and "brokers" not in view.refused}
    late = {
        (server, key.broker_name)
        for server, view in views.items()
        for key, seen in view.brokers.items()
        if seen.evicted_at is not None and seen.evicted_at - now < LEAVING_SECONDS
    }
    found = []
    for one, brokers in (*_of_brokers(views), *_of_topics(told, table)):
        since = None if known_since is None else known_since.get((one.kind, one.name, one.fact), now)
        lacking = _lacking(one)
        having = one.values.keys() - lacking
        starting = frozenset(server for server in lacking if _is_starting(cluster.server(server), now))
        if starting:
            found.append(Disagreement(one, since, "starting", starting))
        elif lacking and brokers and all((server, broker) in late for server in having for broker in brokers):
            found.append(Disagreement(one, since, "leaving", frozenset(having)))
        elif lacking and since is not None and now - since < REGISTERING_SECONDS:
            found.append(Disagreement(one, since, "registering", lacking))
        else:
            found.append(Disagreement(one, since))
    return found


def _lacking(one: Difference) -> frozenset[str]:
    """The servers that have less: not the thing at all, or no queues on a broker. Another value is not less."""
    if one.fact != PRESENT and not one.fact.startswith("queues on "):
        return frozenset()
    return frozenset(server for server, value in one.values.items() if value in (False, None))


def among(found: Iterable[Disagreement], servers: Collection[str]) -> list[Disagreement]:
    """What is left of disagreements if only some of the servers are looked at."""
    left = []
    for one in found:
        values = {server: value for server, value in one.difference.values.items() if server in servers}
        if len(set(values.values())) > 1:
            part = replace(one, difference=replace(one.difference, values=values))
            # what excuses one server excuses no other
            left.append(part if part.blamed & values.keys() else replace(part, reason=None))
    return left


@dataclass(frozen=True, slots=True)
class Group:
    """Differences that are alike: a broker that a server lacks is missed in all its topics."""

    names: list[str]
    one: Difference
    # of the first of them
    since: float | None
    reason: Reason | None


def grouped(found: Iterable[Disagreement]) -> list[Group]:
    """Like ones together, in the order of their first."""
    groups: dict[tuple[object, ...], Group] = {}
    for each in found:
        one = each.difference
        # brokers are few, and each of them matters
        own = one.name if one.kind == "broker" else ""
        key = (one.kind, own, one.fact, each.reason, *one.values.items())
        groups.setdefault(key, Group([], one, each.since, each.reason)).names.append(one.name)
    return list(groups.values())


# a difference, and the names of the brokers that it is about
_Found = tuple[Difference, Collection[str]]


def _of_brokers(views: Mapping[str, ServerView]) -> Iterator[_Found]:
    for key in sorted(frozenset[BrokerKey]().union(*(view.brokers for view in views.values()))):
        name, brokers = "/".join(map(str, key)), (key.broker_name,)
        having = {server: view.brokers[key].live for server, view in views.items() if key in view.brokers}
        if len(having) < len(views):
            yield Difference("broker", name, PRESENT, {server: server in having for server in views}), brokers
        for fact, values in (
            ("address", {server: live.broker_addr for server, live in having.items()}),
            # Apache's server does not tell
            ("wiped", {server: live.write_wiped for server, live in having.items() if live.write_wiped is not None}),
        ):
            if len(set(values.values())) > 1:
                yield Difference("broker", name, fact, values), brokers


def _of_topics(told: Mapping[str, Told], table: TopicTable) -> Iterator[_Found]:
    for row in table.rows:
        if row.missing_on:
            present = {server: server not in row.missing_on for server in told}
            yield Difference("topic", row.name, PRESENT, present), _brokers_of(row.name, told)
        for one in row.differences:
            broker = one.fact.removeprefix("queues on ")
            yield one, () if broker == one.fact else (broker,)


def _brokers_of(topic: str, told: Mapping[str, Told]) -> set[str]:
    routes = [each.routes[topic] for each in told.values() if topic in each.routes]
    return {queues.broker_name for route in routes for queues in route.queue_datas}


def _is_starting(view: ServerView, now: float) -> bool:
    """Whether brokers may not have found it yet."""
    info = view.info
    if info is None:
        return False
    uptime = info.uptime_seconds + (now - view.answered_at if view.answered_at is not None else 0.0)
    return not info.ready or uptime < REGISTERING_SECONDS
