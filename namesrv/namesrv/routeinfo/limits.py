"""How much the tables may hold, checked before a change is worked out."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from namesrv.routeinfo.records import Registration
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.errors import BadRequestError


@dataclass(frozen=True, slots=True)
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


def check_topics(
    tables: RouteTables,
    limits: TableLimits,
    broker_name: str,
    named: Sequence[str],
    gone: Callable[[], Collection[str]] = tuple,
) -> None:
    """Refuse topics too many: these are named for a broker, and `gone()` says which it leaves.

    Raises:
        BadRequestError: with the limit.
    """
    known = tables.topics_of_broker.get(broker_name, set())
    most = len(named)
    if (
        len(known) + most <= limits.max_topics_per_broker
        and tables.route_count + most <= limits.max_routes
        and len(tables.topic_queue_table) + most <= limits.max_topics
    ):
        # nearly always: nothing has to be counted
        return
    names = set(named)
    leaves = known.intersection(gone()) - names
    after = len(known | names) - len(leaves)
    _check(after, limits.max_topics_per_broker, "topics per broker")
    _check(tables.route_count + after - len(known), limits.max_routes, "routes")
    table = tables.topic_queue_table
    new = sum(name not in table for name in names)
    if new:
        dying = sum(len(table[name]) == 1 for name in leaves)
        _check(len(table) + new - dying, limits.max_topics, "topics")


def _check(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise BadRequestError(f"{count} {what}, limit {limit}")
