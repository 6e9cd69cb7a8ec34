"""Shares and quotas: how much of the tables one peer address, one account or one cluster may hold.

A quota is a number that an operator sets for each cluster and account. A share needs no setting, and protects others in
a nearly full table: one address or account may not take the last eighth of the space that other owners leave in a
table. So an honest fleet behind one NAT or proxy, or in one account, may have seven eighths of each table, and for more
its operator raises the limit; an owner that fills a table leaves room for all others. Nothing is counted until a table
is seven eighths full.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from random import choice
from typing import Final, Literal, NamedTuple

from namesrv.routeinfo.rules import LimitExceededError, Rules, TableQuotas
from namesrv.routeinfo.tables.effects import OverQuota
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, Registration, RouteOptions
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS
from namesrv.routeinfo.topics import topics_added
from namesrv_remoting.bodies.base import Steps, chunked
from namesrv_remoting.requests import AccessClass

# One address or account can fill a table except for this fraction of it (one eighth).
_PART_FOR_OTHERS: Final = 8
# Routes that are sampled to estimate how many topics an owner has: all routes of a small fleet, one of many of a large
# one.
_SAMPLES: Final = 10_000


class Sizes(NamedTuple):
    """Numbers of entries in each table, in all or of one owner; a topic on a broker is a route."""

    clusters: int
    brokers: int
    topics: int
    routes: int


class Owner(NamedTuple):
    """The brokers that were registered from one peer address, by one account, or in one cluster."""

    kind: Literal["address", "account", "cluster"]
    name: str
    # True for the live entry of a broker of this owner.
    has: Callable[[BrokerAddrInfo, BrokerLiveInfo], bool]


class Holdings:
    """Sizes by owner, counted once for each state of the tables: a refused peer that tries again costs little."""

    def __init__(self, tables: RouteTables) -> None:
        self._tables = tables
        # The state of the tables that was counted, and the sizes of each owner.
        self._state: tuple[int, int] = (-1, -1)
        self._sizes: dict[tuple[str, str], Sizes] = {}

    def __repr__(self) -> str:
        return f"<Holdings [{len(self._sizes)} owners]>"

    def of(self, owner: Owner) -> Steps[Sizes]:
        """Return the sizes of an owner."""
        state = (self._tables.versions.ownership, self._tables.revisions.revision)
        if state != self._state:
            self._state, self._sizes = state, {}
        name = (owner.kind, owner.name)
        if name not in self._sizes:
            self._sizes[name] = yield from _held_by(self._tables, owner)
        return self._sizes[name]


def check_shares(tables: RouteTables, registration: Registration, rules: Rules, holdings: Holdings) -> Steps[None]:
    """Refuse a registration beyond the share of its peer address or account. Raises LimitExceededError."""
    limits, most = rules.limits, len(registration.body.topic_configs)
    bounds = Sizes(limits.max_clusters, limits.max_brokers, limits.max_topics, limits.max_routes)
    if not may_exceed_a_share(sizes_of(tables), Sizes(1, 1, most, most), bounds):
        # The tables are nearly always empty enough: nothing has to be counted.
        return
    added = yield from _entries_added(tables, registration, rules.options)
    for owner in _owners(registration, rules):
        held = yield from holdings.of(owner)
        _check_share(owner, held, sizes_of(tables), added, bounds)


def _owners(registration: Registration, rules: Rules) -> list[Owner]:
    """Return the peer address and the account whose shares of the tables a registration counts towards."""
    network, account = rules.network_of(registration.connection_id), registration.account
    owners = [
        Owner("address", network, lambda _, live: live.network == network),
        Owner("account", account, lambda _, live: live.account == account),
    ]
    return [owner for owner in owners if owner.name]


def _entries_added(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[Sizes]:
    routes = yield from topics_added(tables, registration, options)
    topics = 0
    for number, topic in enumerate(registration.body.topic_configs, start=1):
        topics += topic.topic_name not in tables.topic_queue_table
        if number % CHUNK_TOPICS == 0:
            yield
    is_new_cluster = registration.cluster_name not in tables.cluster_addr_table
    return Sizes(is_new_cluster, is_new_broker(tables, registration), topics, routes)


def share_of(limit: int, held_by_others: int) -> int:
    """Return how many entries of a table one owner may have while other owners have `held_by_others`."""
    free = max(0, limit - held_by_others)
    return free - free // _PART_FOR_OTHERS


def may_exceed_a_share(total: Sizes, added: Sizes, limits: Sizes) -> bool:
    """True if any table would be so full that one owner may have too much of it."""
    tables = zip(total, added, limits, strict=True)
    return any(more > 0 and count + more > share_of(limit, 0) for count, more, limit in tables)


def _check_share(owner: Owner, held: Sizes, total: Sizes, added: Sizes, limits: Sizes) -> None:
    """Refuse added entries beyond an owner's share of a table. Raises LimitExceededError."""
    for table, own, all_entries, more, limit in zip(Sizes._fields, held, total, added, limits, strict=True):
        share = share_of(limit, all_entries - own)
        if more > 0 and own + more > share:
            what, reason = f"{table} of {owner.kind} {owner.name}", f"{table}_per_{owner.kind}"
            raise LimitExceededError(own + more, share, what, reason)


def sizes_of(tables: RouteTables) -> Sizes:
    """Return the total sizes of the tables."""
    return Sizes(
        len(tables.cluster_addr_table),
        len(tables.broker_live_table),
        len(tables.topic_queue_table),
        tables.topics.route_count,
    )


def _held_by(tables: RouteTables, owner: Owner) -> Steps[Sizes]:
    brokers = 0
    names: set[str] = set()
    for chunk in chunked(list(tables.broker_live_table.items()), CHUNK_TOPICS):
        for key, live in chunk:
            if owner.has(key, live):
                brokers += 1
                names.add(live.broker_name)
        yield
    routes = sum(len(tables.topics.of_broker.get(name, ())) for name in names)
    topics = yield from _topics_of(tables, names, routes)
    # All clusters count in which the names are: a name stays in a cluster after its broker has named another one.
    clusters = sum(not names.isdisjoint(members) for members in tables.cluster_addr_table.values())
    return Sizes(clusters, brokers, topics, routes)


def _topics_of(tables: RouteTables, names: Iterable[str], routes: int) -> Steps[int]:
    """Estimate how many topics these brokers have; a topic on three brokers counts a third for each of them.

    Counting the distinct topics of a fleet with a million topics would take as much memory as the tables. So one route
    of a number of routes, drawn at random, stands for all of them.
    """
    names_of_topics: Iterator[str] = chain.from_iterable(tables.topics.of_broker.get(name, ()) for name in names)
    size = max(1, routes // _SAMPLES)
    topics = 0.0
    for number, chunk in enumerate(chunked(names_of_topics, size), start=1):
        row = tables.topic_queue_table[choice(chunk)]
        topics += len(chunk) / len(row.queues)
        if number % CHUNK_TOPICS == 0:
            yield
    return round(topics)


# -- quotas of clusters and accounts ----------------------------------------------------------------------------------


def over_quota(
    tables: RouteTables,
    registration: Registration,
    rules: Rules,
    replaced: Mapping[BrokerAddrInfo, BrokerLiveInfo],
) -> Steps[OverQuota | None]:
    """Return the quota that a registration exceeds; None without excess or addition.

    The registration takes the places of the brokers in `replaced`.
    """
    quotas, cluster, account = rules.quotas, registration.cluster_name, registration.account
    if quotas.mode == "off" or not (quotas.brokers or quotas.topics):
        return None
    owners = [Owner("cluster", cluster, lambda key, _: key.cluster_name == cluster)]
    if account:
        owners.append(Owner("account", account, lambda _, live: live.account == account))
    added = yield from topics_added(tables, registration, rules.options)
    for owner in owners:
        excess = yield from _exceeded_quota(tables, registration, owner, quotas, added, replaced=replaced)
        if excess is not None:
            return OverQuota(AccessClass.BROKER_CONTROL, *excess, is_refused=quotas.mode == "enforce")
    return None


def _exceeded_quota(  # noqa: PLR0913 - the registration, its owner and the quotas
    tables: RouteTables,
    registration: Registration,
    owner: Owner,
    quotas: TableQuotas,
    added: int,
    *,
    replaced: Mapping[BrokerAddrInfo, BrokerLiveInfo],
) -> Steps[tuple[str, str] | None]:
    """Return the quota of one owner that a registration exceeds, as a word and a sentence."""
    is_new = not any(owner.has(key, live) for key, live in replaced.items())
    if not _has_name(tables, registration.broker_name, owner):
        # A broker that moves to the owner brings its topics.
        added += len(tables.topics.of_broker.get(registration.broker_name, ()))
    if not (quotas.brokers and is_new) and not (quotas.topics and added > 0):
        return None
    # The loop visits all brokers, since a cluster often holds all of them; but only for registrations that add
    # something, which are rare.
    brokers, names = 0, set[str]()
    for number, (key, live) in enumerate(list(tables.broker_live_table.items()), start=1):
        if owner.has(key, live):
            brokers += key not in replaced
            if key not in replaced or live.broker_name == registration.broker_name:
                names.add(live.broker_name)
        if number % CHUNK_TOPICS == 0:
            yield
    if quotas.brokers and is_new and brokers + 1 > quotas.brokers:
        message = f"{brokers + 1} brokers of {owner.kind} {owner.name}, limit {quotas.brokers}"
        return f"brokers_per_{owner.kind}", message
    topics = sum(len(tables.topics.of_broker.get(name, ())) for name in names) + added
    if quotas.topics and added > 0 and topics > quotas.topics:
        return f"topics_per_{owner.kind}", f"{topics} topics of {owner.kind} {owner.name}, limit {quotas.topics}"
    return None


def _has_name(tables: RouteTables, name: str, owner: Owner) -> bool:
    """True if a live broker of this name belongs to the owner."""
    return any(owner.has(key, live) for key, live in tables.brokers_named(name))


def is_new_broker(tables: RouteTables, registration: Registration) -> bool:
    """True if a registration adds a broker: one that takes another broker's place does not."""
    addrs = tables.addrs_of(registration.broker_name)
    return registration.key not in tables.broker_live_table and registration.broker_id not in addrs
