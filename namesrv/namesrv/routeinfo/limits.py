"""How much the tables may hold, checked before a change is worked out."""

from collections.abc import Iterable
from dataclasses import dataclass

from namesrv.routeinfo.records import Registration
from namesrv.routeinfo.tables import CHUNK_TOPICS, RouteTables
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.errors import BadRequestError


@dataclass(slots=True)
class TableLimits:
    """Bounds of the tables; settings/model.py says why each is as it is. A route is a topic on a broker."""

    max_clusters: int
    max_brokers: int
    max_topics: int
    max_routes: int
    max_topics_per_broker: int
    max_brokers_per_connection: int
    max_topics_per_connection: int


def check_new_broker(tables: RouteTables, limits: TableLimits, registration: Registration) -> None:
    """Refuse a broker or a cluster too many; one that takes the place of another is none.

    Raises:
        BadRequestError: with the limit.
    """
    group = tables.broker_addr_table.get(registration.broker_name)
    takes_place = group is not None and registration.broker_id in group.broker_addrs
    if registration.key not in tables.broker_live_table and not takes_place:
        _check(len(tables.broker_live_table) + 1, limits.max_brokers, "brokers")
    if registration.cluster_name not in tables.cluster_addr_table:
        _check(len(tables.cluster_addr_table) + 1, limits.max_clusters, "clusters")


def check_connection(tables: RouteTables, limits: TableLimits, registration: Registration) -> None:
    """Refuse what would be too much for one connection, whichever of its brokers brings it.

    Raises:
        BadRequestError: with the limit.
    """
    others = tables.brokers_on_connection.get(registration.connection_id, set()) - {registration.key}
    _check(len(others) + 1, limits.max_brokers_per_connection, "brokers on one connection")
    named = len(registration.body.topic_configs)
    names = {tables.broker_live_table[key].broker_name for key in others} - {registration.broker_name}
    topics = sum(len(tables.topics_of_broker.get(name, ())) for name in names)
    _check(topics + named, limits.max_topics_per_connection, "topics on one connection")


def check_topics(  # noqa: PLR0913, PLR0917 - what is named, and what that does away with
    tables: RouteTables,
    limits: TableLimits,
    broker_name: str,
    named: Iterable[str],
    most: int,
    dropped: Steps[set[str]] | None = None,
) -> Steps[None]:
    """Refuse topics too many: these, at most so many, are named for a broker, and `dropped` says which it leaves.

    Raises:
        BadRequestError: with the limit.
    """
    table, known = tables.topic_queue_table, tables.topics_of_broker.get(broker_name, set())
    if (
        len(known) + most <= limits.max_topics_per_broker
        and tables.route_count + most <= limits.max_routes
        and len(table) + most <= limits.max_topics
    ):
        # nearly always: nothing has to be counted
        return
    names: set[str] = set()
    more = new = 0
    for number, name in enumerate(named, start=1):
        if name not in names:
            names.add(name)
            more += name not in known
            new += name not in table
        if number % CHUNK_TOPICS == 0:
            yield
    dying = 0
    for number, name in enumerate((yield from dropped) if dropped else (), start=1):
        if name not in names:
            more -= 1
            dying += len(table[name]) == 1
        if number % CHUNK_TOPICS == 0:
            yield
    _check(len(known) + more, limits.max_topics_per_broker, "topics per broker")
    _check(tables.route_count + more, limits.max_routes, "routes")
    if new:
        _check(len(table) + new - dying, limits.max_topics, "topics")


def _check(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise BadRequestError(f"{count} {what}, limit {limit}")
