"""Disagreements of the servers: their start, and whether they are expected."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from namesrv_client.ctl.comparison import PRESENT, Difference, Fact, addresses_of_one_server
from namesrv_client.health import REGISTERING_SECONDS, subject_of
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView, TopicReport
from namesrv_console.views.topics import TopicTable

# starting: a server has just started, and brokers have yet to register; registering: a broker registers with one server
# after the other; leaving: the next scan of the server that still has the broker evicts it.
Reason = Literal["starting", "registering", "leaving"]

# The time between two scans, with some reserve.
LEAVING_SECONDS: Final = 12.0

# Kind, name and fact of a difference.
Key = tuple[str, str, Fact]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A difference with its start and its explanation."""

    difference: Difference
    # Start on the console's clock; None: the disagreement is older than the console.
    since: float | None
    # None: the disagreement is unexpected.
    reason: Reason | None = None
    # The servers to which the reason applies; without a reason, those that are starting.
    blamed: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        """The key of the disagreement while it lasts."""
        return self.difference.kind, self.difference.name, self.difference.fact

    @property
    def is_missing_broker(self) -> bool:
        """True if some servers lack a broker; the difference then has the broker's name as `cluster/name/id`."""
        return self.difference.kind == "broker" and self.difference.fact == PRESENT

    @property
    def expected_on(self) -> Collection[str]:
        """The servers whose difference is expected to end soon; without a reason, those that are starting."""
        return self.blamed if self.reason is None else self.difference.values.keys()

    @property
    def starting_on(self) -> Collection[str]:
        """The servers that lack the thing because they have just started."""
        return self.blamed if self.reason in (None, "starting") else frozenset()

    def document(self, now: float) -> dict[str, Any]:
        """The members for JSON."""
        return {
            **self.difference.document(),
            "seconds": None if self.since is None else round(now - self.since, 3),
            "expected": self.reason,
        }


def disagreements(
    cluster: Cluster,
    reports: Mapping[str, TopicReport],
    table: TopicTable,
    known_since: Mapping[Key, float | None] | None,
    now: float,
) -> list[Disagreement]:
    """All disagreements of the reachable servers, those about brokers first.

    `known_since` has the `since` of the previous disagreements; it is None the first time.
    """
    views = {view.address: view for view in cluster.servers if view.reports_brokers}
    late = {
        (server, key.broker_name)
        for server, view in views.items()
        for key, seen in view.brokers.items()
        if _is_leaving(seen, now)
    }
    found = []
    for one, brokers in (*_of_brokers(views), *_of_topics(reports, table)):
        since = None if known_since is None else known_since.get((one.kind, one.name, one.fact), now)
        lacking = lacking_servers(one)
        having = one.values.keys() - lacking
        starting = frozenset(server for server in lacking if cluster.server(server).is_starting(now))
        # A server that starts does not excuse a disagreement of the other servers.
        if starting and len({value for server, value in one.values.items() if server not in starting}) <= 1:
            found.append(Disagreement(one, since, "starting", starting))
        elif lacking and brokers and all((server, broker) in late for server in having for broker in brokers):
            found.append(Disagreement(one, since, "leaving", frozenset(having)))
        elif lacking and since is not None and now - since < REGISTERING_SECONDS:
            found.append(Disagreement(one, since, "registering", lacking))
        else:
            found.append(Disagreement(one, since, blamed=starting))
    return found


def same_servers(views: Iterable[ServerView]) -> list[list[str]]:
    """The addresses of each server that has several of them in the list: it always agrees with itself."""
    return addresses_of_one_server({view.address: view.boot_id for view in views})


def _is_leaving(seen: BrokerSeen, now: float) -> bool:
    """True if the next scan evicts the broker: most of its expiry has passed in silence."""
    if seen.evicted_at is None or seen.last_seen_at is None:
        return False
    return seen.evicted_at - now < min(LEAVING_SECONDS, now - seen.last_seen_at)


def lacking_servers(one: Difference) -> frozenset[str]:
    """The servers that lack the thing itself, or its queues on a broker; another value does not count as lacking."""
    if one.fact.kind not in ("present", "queues on"):
        return frozenset()
    return frozenset(server for server, value in one.values.items() if value in (False, None))


def awaited_brokers(found: Iterable[Disagreement]) -> dict[str, Collection[str]]:
    """Broker, as `cluster/name/id` -> the servers that lack the broker because they have just started."""
    return {one.difference.name: one.starting_on for one in found if one.is_missing_broker and one.starting_on}


def among(found: Iterable[Disagreement], servers: Collection[str]) -> list[Disagreement]:
    """The disagreements that remain if only some of the servers are compared."""
    left = []
    for one in found:
        values = {server: value for server, value in one.difference.values.items() if server in servers}
        if len(set(values.values())) > 1:
            part = replace(one, difference=replace(one.difference, values=values))
            # A reason that applies to one server does not excuse another.
            left.append(part if part.blamed & values.keys() else replace(part, reason=None))
    return left


@dataclass(frozen=True, slots=True)
class Group:
    """Equal disagreements, which a page shows in one line."""

    names: list[str]
    one: Difference
    # Start and reason of the first difference.
    since: float | None
    reason: Reason | None
    # The servers whose difference is expected.
    expected_on: Collection[str] = ()

    @property
    def minority(self) -> frozenset[str]:
        """The servers whose value is rarer than another one; if all are equally frequent, those without a value.

        Servers whose difference is expected do not count.
        """
        values = {server: value for server, value in self.one.values.items() if server not in self.expected_on}
        counts = Counter(values.values())
        most = max(counts.values(), default=0)
        rare = frozenset(server for server, value in values.items() if counts[value] < most)
        return rare or lacking_servers(self.one) & values.keys()


def grouped(found: Iterable[Disagreement]) -> list[Group]:
    """Groups of equal disagreements: unexpected ones first, then in the order of their first members."""
    groups: dict[tuple[object, ...], Group] = {}
    for each in found:
        one = each.difference
        key = (*one.line_key, each.reason, each.blamed)
        groups.setdefault(key, Group([], one, each.since, each.reason, each.expected_on)).names.append(one.name)
    return sorted(groups.values(), key=lambda group: group.reason is not None)


# A difference, and the names of its brokers.
_Found = tuple[Difference, Collection[str]]


def _of_brokers(views: Mapping[str, ServerView]) -> Iterator[_Found]:
    for key in sorted(frozenset[BrokerKey]().union(*(view.brokers for view in views.values()))):
        name, brokers = subject_of(key), (key.broker_name,)
        having = {server: view.brokers[key].live for server, view in views.items() if key in view.brokers}
        if len(having) < len(views):
            yield Difference("broker", name, PRESENT, {server: server in having for server in views}), brokers
        for fact, values in (
            (Fact("address"), {server: live.broker_addr for server, live in having.items()}),
            # Apache's server does not report removed write permissions.
            (
                Fact("write removed"),
                {server: live.write_removed for server, live in having.items() if live.write_removed is not None},
            ),
        ):
            if len(set(values.values())) > 1:
                yield Difference("broker", name, fact, values), brokers


def _of_topics(reports: Mapping[str, TopicReport], table: TopicTable) -> Iterator[_Found]:
    for row in table.rows:
        if row.missing_on:
            present = {server: server not in row.missing_on for server in reports}
            yield Difference("topic", row.name, PRESENT, present), _brokers_of(row.name, reports)
        for one in row.differences:
            yield one, (one.fact.of,) if one.fact.kind == "queues on" else ()


def _brokers_of(topic: str, reports: Mapping[str, TopicReport]) -> set[str]:
    routes = [each.routes[topic] for each in reports.values() if topic in each.routes]
    return {queues.broker_name for route in routes for queues in route.queue_datas}
