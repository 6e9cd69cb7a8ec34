"""Shares of the tables: how much of a nearly full table one peer address or one account may hold.

One address or account may not take the last eighth of the space that other owners leave in a table. So an honest fleet
behind one NAT or proxy, or in one account, may have seven eighths of each table, and for more its operator raises the
limit; an owner that fills a table leaves room for all others. Nothing is counted until a table is seven eighths full.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from random import choice
from typing import Final, Literal, NamedTuple

from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.rows import CHUNK_TOPICS
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.base import Steps, parts

# One address or account can fill a table except for this fraction of it (one eighth).
_PART_FOR_OTHERS: Final = 8
# Routes that are sampled to estimate how many topics an owner has: all routes of a small fleet, one of many of a large
# one.
_SAMPLES: Final = 10_000


class Sizes(NamedTuple):
    """Numbers of table rows, in all or of one owner; a topic on a broker is a route."""

    clusters: int
    brokers: int
    topics: int
    routes: int


class Owner(NamedTuple):
    """The brokers that were registered from one peer address, or by one account."""

    kind: Literal["address", "account"]
    name: str
    has: Callable[[BrokerLiveInfo], bool]


class Excess(NamedTuple):
    """A share that a registration would exceed."""

    owner: Owner
    table: str
    # The rows that the owner would have, and the rows that it may have.
    rows: int
    share: int


class HeldRows:
    """Rows by owner, counted once for each state of the tables: a refused peer that tries again costs little."""

    def __init__(self, tables: RouteTables) -> None:
        self._tables = tables
        # The state of the tables that was counted, and the rows of each owner.
        self._state: tuple[int, int] = (-1, -1)
        self._rows: dict[tuple[str, str], Sizes] = {}

    def __repr__(self) -> str:
        return f"<HeldRows [{len(self._rows)} owners]>"

    def of(self, owner: Owner) -> Steps[Sizes]:
        """Return the rows of an owner."""
        state = (self._tables.ownership_changes, self._tables.revisions.revision)
        if state != self._state:
            self._state, self._rows = state, {}
        name = (owner.kind, owner.name)
        if name not in self._rows:
            self._rows[name] = yield from _held_by(self._tables, owner)
        return self._rows[name]


def share_of(limit: int, held_by_others: int) -> int:
    """Return how many rows of a table one owner may have while other owners have `held_by_others`."""
    free = max(0, limit - held_by_others)
    return free - free // _PART_FOR_OTHERS


def may_exceed_a_share(total: Sizes, added: Sizes, limits: Sizes) -> bool:
    """True if any table would be so full that one owner may have too much of it."""
    rows = zip(total, added, limits, strict=True)
    return any(more > 0 and count + more > share_of(limit, 0) for count, more, limit in rows)


def exceeded_share(owner: Owner, held: Sizes, total: Sizes, added: Sizes, limits: Sizes) -> Excess | None:
    """Return the first share that an owner would exceed with the added rows; None without excess."""
    for table, own, all_rows, more, limit in zip(Sizes._fields, held, total, added, limits, strict=True):
        share = share_of(limit, all_rows - own)
        if more > 0 and own + more > share:
            return Excess(owner, table, own + more, share)
    return None


def sizes_of(tables: RouteTables) -> Sizes:
    """Return the rows of the tables in all."""
    return Sizes(
        len(tables.cluster_addr_table),
        len(tables.broker_live_table),
        len(tables.topic_queue_table),
        tables.topics.route_count,
    )


def _held_by(tables: RouteTables, owner: Owner) -> Steps[Sizes]:
    keys: list[BrokerAddrInfo] = []
    names: set[str] = set()
    for part in parts(list(tables.broker_live_table.items()), CHUNK_TOPICS):
        for key, live in part:
            if owner.has(live):
                keys.append(key)
                names.add(live.broker_name)
        yield
    routes = sum(len(tables.topics.of_broker.get(name, ())) for name in names)
    topics = yield from _topics_of(tables, names, routes)
    return Sizes(len({key.cluster_name for key in keys}), len(keys), topics, routes)


def _topics_of(tables: RouteTables, names: Iterable[str], routes: int) -> Steps[int]:
    """Estimate how many topics these brokers have; a topic on three brokers counts a third for each of them.

    Counting the distinct topics of a fleet with a million topics would take as much memory as the tables. So one route
    of a number of routes, drawn at random, stands for all of them.
    """
    names_of_topics: Iterator[str] = chain.from_iterable(tables.topics.of_broker.get(name, ()) for name in names)
    size = max(1, routes // _SAMPLES)
    topics = 0.0
    for number, part in enumerate(parts(names_of_topics, size), start=1):
        row = tables.topic_queue_table[choice(part)]
        topics += len(part) / len(row.queues)
        if number % CHUNK_TOPICS == 0:
            yield
    return round(topics)
