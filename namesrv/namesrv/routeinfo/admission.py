"""What is refused before it is worked out: what contradicts the tables, or would make them hold too much."""

from collections.abc import Iterable
from dataclasses import dataclass

from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, Registration, RouteOptions
from namesrv.routeinfo.registration import addrs_after, creates_routes, topics_dropped
from namesrv.routeinfo.tables import CHUNK_TOPICS, RouteTables
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, SystemError_


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


def check_registration(
    tables: RouteTables, registration: Registration, options: RouteOptions, limits: TableLimits
) -> Steps[None]:
    """Refuse what must not be applied, before anything is worked out.

    Raises:
        QueryNotFoundError: a delta of a broker that is not known under this agent: it has to register fully.
        BadRequestError: it is older than what is known, or the tables would hold too much.
        SystemError_: a first registration with exactly one topic, which could be a part taken for the whole.
    """
    key, name, configs = registration.key, registration.broker_name, registration.body.topic_configs
    live, group = tables.broker_live_table.get(key), tables.broker_addr_table.get(name)
    addrs = {} if group is None else group.broker_addrs
    holder = addrs.get(registration.broker_id)
    if registration.kind == "delta" and (
        live is None or live.agent_id != registration.agent_id or live.broker_name != name or holder != key.broker_addr
    ):
        raise QueryNotFoundError(f"broker {name} at {key.broker_addr} is not registered")
    _check_age(tables, registration, live, holder)
    is_one_topic = bool(configs) and all(topic.topic_name == configs[0].topic_name for topic in configs)
    if holder is None and is_one_topic and not registration.is_native:
        raise SystemError_("register broker failed", ext_fields={})
    if live is None and holder is None:
        # one that takes another's place adds no broker
        _check(len(tables.broker_live_table) + 1, limits.max_brokers, "brokers")
    if registration.cluster_name not in tables.cluster_addr_table:
        _check(len(tables.cluster_addr_table) + 1, limits.max_clusters, "clusters")
    # what would be too much for one connection, whichever of its brokers brings it
    others = tables.brokers_on_connection.get(registration.connection_id, set()) - {key}
    _check(len(others) + 1, limits.max_brokers_per_connection, "brokers on one connection")
    names = {tables.broker_live_table[other].broker_name for other in others} - {name}
    topics = sum(len(tables.topics_of_broker.get(other, ())) for other in names)
    _check(topics + len(configs), limits.max_topics_per_connection, "topics on one connection")
    if creates_routes(registration, addrs_after(registration, addrs)):
        named = (topic.topic_name for topic in configs)
        dropped = topics_dropped(tables, registration, options)
        yield from check_topics(tables, limits, name, named, len(configs), dropped)


def _check_age(
    tables: RouteTables, registration: Registration, live: BrokerLiveInfo | None, holder: str | None
) -> None:
    """Refuse what an agent sent before its last registration, and a master of an earlier term."""
    if live is not None and registration.agent_id is not None and live.agent_id == registration.agent_id:
        offered, known = registration.registration_seq or 0, live.registration_seq or 0
        if offered < known:
            raise BadRequestError(f"field registrationSeq: {offered} is older than the registered {known}")
    if holder is None or holder == registration.broker_addr:
        return
    held_by = tables.broker_live_table.get(BrokerAddrInfo(registration.cluster_name, holder))
    held = 0 if held_by is None or held_by.data_version is None else held_by.data_version.state_version
    offered = 0 if registration.body.data_version is None else registration.body.data_version.state_version
    if held > offered:
        raise BadRequestError(
            f"field stateVersion: {offered} is lower than {held} of {holder}, "
            f"which holds id {registration.broker_id} of {registration.broker_name}",
            ext_fields={},
        )


def check_topics(  # noqa: PLR0913, PLR0917 - what is named, and what that does away with
    tables: RouteTables,
    limits: TableLimits,
    broker_name: str,
    named: Iterable[str],
    most: int,
    dropped: Steps[set[str]] | None = None,
) -> Steps[None]:
    """Refuse too many topics: `named`, at most `most`, for a broker that leaves `dropped`. Raises BadRequestError."""
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
