"""Checks of registrations: quotas, takeovers, contradictions to the tables, and limits."""

from collections.abc import Iterable

from namesrv.routeinfo.rules import LimitExceededError, Rules, TableLimits
from namesrv.routeinfo.shares import check_shares, is_new_broker, over_quota
from namesrv.routeinfo.tables.records import BrokerAddrInfo, Registration
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS
from namesrv.routeinfo.takeovers import replaced_by, takeover_by, takeover_refusal
from namesrv.routeinfo.topics import topics_dropped
from namesrv.routeinfo.write_section import WriteSection
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.topic import logical_queues
from namesrv_remoting.codes import STALE_FIELD
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, SystemBusyError, SystemError_


def check_registration(section: WriteSection, registration: Registration) -> Steps[None]:
    """Refuse a registration, or return; the tables stay as they are.

    An exceeded quota or a takeover that is only observed is an effect, and no refusal. Raises ResponseError.
    """
    tables, rules = section.tables, section.rules
    excess = yield from over_quota(tables, registration, rules, replaced_by(tables, registration))
    takeover = takeover_by(tables, registration, rules)
    section.effects.extend(effect for effect in (excess, takeover) if effect is not None)
    if takeover is not None and takeover.is_refused:
        raise takeover_refusal(takeover, "take its place")
    if excess is not None and excess.is_refused:
        raise SystemBusyError(excess.message)
    check_delta(tables, registration)
    check_sequence(tables, registration)
    check_state_version(tables, registration, rules)
    check_first_topics(tables, registration)
    check_brokers(tables, registration, rules.limits)
    yield from check_topics_of(tables, registration, rules)
    yield from check_shares(tables, registration, rules, section.holdings)


# -- contradictions to the tables -------------------------------------------------------------------------------------


def check_delta(tables: RouteTables, registration: Registration) -> None:
    """Refuse a delta of a broker that is not known under this agent: the broker has to register fully.

    Raises QueryNotFoundError.
    """
    key, name = registration.key, registration.broker_name
    live, holder = tables.broker_live_table.get(key), tables.addrs_of(name).get(registration.broker_id)
    if registration.kind == "delta" and (
        live is None or live.agent_id != registration.agent_id or live.broker_name != name or holder != key.broker_addr
    ):
        raise QueryNotFoundError(f"broker {name} at {key.broker_addr} is not registered")


def check_sequence(tables: RouteTables, registration: Registration) -> None:
    """Refuse a registration that its agent sent before the registered one. Raises BadRequestError.

    Sequences are compared on the broker's own connection and on older ones. A registration over a newer connection
    always counts as later, so that a forged sequence cannot lock an agent out.
    """
    live = tables.broker_live_table.get(registration.key)
    if (
        live is not None
        and registration.agent_id is not None
        and live.agent_id == registration.agent_id
        and registration.connection_id <= live.connection_id
    ):
        offered, known = registration.registration_seq or 0, live.registration_seq or 0
        if offered < known:
            message = f"field registrationSeq: {offered} is older than the registered {known}"
            raise BadRequestError(message, ext_fields={STALE_FIELD: "true"})


def check_first_topics(tables: RouteTables, registration: Registration) -> None:
    """Refuse a first registration with exactly one topic, as Java does. Raises SystemError_.

    A Java broker registers a changed topic alone, in the form of a full registration, which would make the broker known
    by this topic only. Native registrations have a kind.
    """
    configs = registration.body.topic_configs
    is_new = registration.broker_id not in tables.addrs_of(registration.broker_name)
    is_one_topic = bool(configs) and all(topic.topic_name == configs[0].topic_name for topic in configs)
    if is_new and is_one_topic and not registration.is_native:
        raise SystemError_("register broker failed", ext_fields={})


def check_state_version(tables: RouteTables, registration: Registration, rules: Rules) -> None:
    """Refuse a broker with a lower state version than the holder of the requested id. Raises BadRequestError."""
    holder = tables.addrs_of(registration.broker_name).get(registration.broker_id)
    if holder is None or holder == registration.broker_addr:
        return
    held = _state_version_of(tables, registration, holder, rules)
    offered = 0 if registration.body.data_version is None else registration.body.data_version.state_version
    if held > offered:
        raise BadRequestError(
            f"field stateVersion: {offered} is lower than {held} of {holder}, "
            f"which holds id {registration.broker_id} of {registration.broker_name}",
            ext_fields={},
        )


def _state_version_of(tables: RouteTables, registration: Registration, holder: str, rules: Rules) -> int:
    """Return the state version below which other brokers cannot take the holder's id; 0 without protection.

    A state version protects the holder against registrations of the same account and cluster, while the holder's own
    connection is open. The state version of a broker that is registered over two open connections does not count, since
    any peer may have sent it.
    """
    key = BrokerAddrInfo(registration.cluster_name, holder)
    live = tables.broker_live_table.get(key)
    if live is None or live.data_version is None or live.account != registration.account:
        return 0
    others = tables.connections.others_of(key).items()
    is_contested = any(other.registered and rules.is_connected(number) for number, other in others)
    if is_contested or not rules.is_connected(live.connection_id):
        return 0
    return live.data_version.state_version


# -- limits -----------------------------------------------------------------------------------------------------------


def check_brokers(tables: RouteTables, registration: Registration, limits: TableLimits) -> None:
    """Refuse a registration beyond the limits of brokers, brokers per group, clusters, and clusters per group.

    Raises LimitExceededError.
    """
    name, addrs = registration.broker_name, tables.addrs_of(registration.broker_name)
    if is_new_broker(tables, registration):
        _check(len(tables.broker_live_table) + 1, limits.max_brokers, "brokers")
    if registration.broker_id not in addrs and registration.broker_addr not in addrs.values():
        _check(len(addrs) + 1, limits.max_brokers_per_group, "brokers per group")
    if registration.cluster_name not in tables.cluster_addr_table:
        _check(len(tables.cluster_addr_table) + 1, limits.max_clusters, "clusters")
    if addrs and name not in tables.cluster_addr_table.get(registration.cluster_name, ()):
        _check(len(tables.clusters_of(name)) + 1, limits.max_clusters_per_group, "clusters per group")


def check_topics_of(tables: RouteTables, registration: Registration, rules: Rules) -> Steps[None]:
    """Refuse a registration with too many topics. Raises LimitExceededError."""
    name, configs = registration.broker_name, registration.body.topic_configs
    if registration.makes_routes(tables.addrs_of(name)):
        named = (topic.topic_name for topic in configs)
        dropped = topics_dropped(tables, registration, rules.options)
        yield from check_topics(tables, rules.limits, name, named, len(configs), dropped)
        yield from check_mappings(tables, registration, rules.limits)


def check_mappings(tables: RouteTables, registration: Registration, limits: TableLimits) -> Steps[None]:
    """Refuse too many logical queues of static topics, of which the tables may have as many as topics.

    Raises LimitExceededError.
    """
    more = 0
    for number, (topic, mapping) in enumerate(registration.body.mappings.items(), start=1):
        known = tables.topics.mappings.get(topic, {}).get(registration.broker_name)
        more += logical_queues(mapping) - logical_queues(known)
        if number % CHUNK_TOPICS == 0:
            yield
    if more > 0:
        _check(tables.topics.mapped_count + more, limits.max_topics, "logical queues")


def check_topics(  # noqa: PLR0913, PLR0917 - the named and the dropped topics
    tables: RouteTables,
    limits: TableLimits,
    broker_name: str,
    named: Iterable[str],
    most: int,
    dropped: Steps[set[str]] | None = None,
) -> Steps[None]:
    """Refuse too many topics of a broker name that registers the topics `named`, and loses the topics `dropped`.

    `most` is the number of names in `named`, repeated ones included. Raises LimitExceededError.
    """
    table, known = tables.topic_queue_table, tables.topics.of_broker.get(broker_name, {})
    if (
        len(known) + most <= limits.max_topics_per_broker
        and tables.topics.route_count + most <= limits.max_routes
        and len(table) + most <= limits.max_topics
    ):
        # The tables are nearly always empty enough: nothing has to be counted.
        return
    names: set[str] = set()
    # Topics that the broker name gains, and topics that no broker has yet.
    more = new = 0
    for number, name in enumerate(named, start=1):
        if name not in names:
            names.add(name)
            more += name not in known
            new += name not in table
        if number % CHUNK_TOPICS == 0:
            yield
    # Dropped topics that no other broker has.
    dying = 0
    for number, name in enumerate((yield from dropped) if dropped else (), start=1):
        if name not in names:
            more -= 1
            dying += len(table[name].queues) == 1
        if number % CHUNK_TOPICS == 0:
            yield
    if more > 0:
        # A broker that adds no topic keeps its topics under a limit that was lowered.
        _check(len(known) + more, limits.max_topics_per_broker, "topics per broker")
        check_routes(tables, limits, more)
    if new:
        _check(len(table) + new - dying, limits.max_topics, "topics")


def check_routes(tables: RouteTables, limits: TableLimits, more: int) -> None:
    """Refuse too many routes: pairs of topic and broker name. Raises LimitExceededError."""
    _check(tables.topics.route_count + more, limits.max_routes, "routes")


def _check(count: int, limit: int, what: str) -> None:
    """Compare a count with its limit; `what` names the counted things. Raises LimitExceededError."""
    if count > limit:
        raise LimitExceededError(count, limit, what)
