"""Admission of registrations: all checks before the first change.

Any peer may register under any broker's name and address, and the newest registration counts, as in Java: a broker that
restarts elsewhere takes its place at once. Three rules protect a live broker from a takeover:

- Its state version, if its group elects a master: a broker of an earlier term, with a lower state version, is refused.
- The takeover policy (`warn` or `refuse`), if the broker was lately seen over an open connection that is or was its
  own.
- Its access rules: a broker that the guard found in a place reserved for another account, a squatter, is removed.
"""

from collections.abc import Iterable, Iterator

from namesrv.routeinfo.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.effects import TakeoverAttempted
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, Registration
from namesrv.routeinfo.rows import CHUNK_TOPICS
from namesrv.routeinfo.rules import LimitExceededError, Rules, TableLimits
from namesrv.routeinfo.shares import check_shares, is_new_broker, over_quota, topics_dropped
from namesrv.routeinfo.tables import RouteTables
from namesrv.routeinfo.write_section import WriteSection
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.topic import logical_queues
from namesrv_remoting.codes import STALE_FIELD
from namesrv_remoting.errors import (
    BadRequestError,
    NoPermissionError,
    QueryNotFoundError,
    SystemBusyError,
    SystemError_,
)


def admit(section: WriteSection, registration: Registration) -> Steps[None]:
    """Refuse a registration, or return. Quotas and takeovers may be observed only: then they are just effects.

    Raises ResponseError.
    """
    tables, rules = section.tables, section.rules
    excess = yield from over_quota(tables, registration, rules, replaced_by(tables, registration))
    takeover = takeover_by(tables, registration, rules)
    section.effects.extend(effect for effect in (excess, takeover) if effect is not None)
    if takeover is not None and takeover.is_refused:
        raise takeover_refusal(takeover, "take its place")
    if excess is not None and excess.is_refused:
        raise SystemBusyError(excess.message)
    yield from check_registration(tables, registration, rules)
    yield from check_shares(tables, registration, rules, section.held_rows)


def check_registration(tables: RouteTables, registration: Registration, rules: Rules) -> Steps[None]:
    """Refuse a registration that contradicts the tables or exceeds their limits. Raises ResponseError."""
    for check in (check_delta, check_sequence, check_state_version, check_first_topics, check_brokers):
        check(tables, registration, rules)
    yield from check_topics_of(tables, registration, rules)


# -- contradictions to the tables -------------------------------------------------------------------------------------


def check_delta(tables: RouteTables, registration: Registration, _: Rules) -> None:
    """Refuse a delta of a broker that is not known under this agent: the broker has to register fully.

    Raises QueryNotFoundError.
    """
    key, name = registration.key, registration.broker_name
    live, holder = tables.broker_live_table.get(key), tables.addrs_of(name).get(registration.broker_id)
    if registration.kind == "delta" and (
        live is None or live.agent_id != registration.agent_id or live.broker_name != name or holder != key.broker_addr
    ):
        raise QueryNotFoundError(f"broker {name} at {key.broker_addr} is not registered")


def check_sequence(tables: RouteTables, registration: Registration, _: Rules) -> None:
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


def check_first_topics(tables: RouteTables, registration: Registration, _: Rules) -> None:
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


def check_brokers(tables: RouteTables, registration: Registration, rules: Rules) -> None:
    """Refuse a registration beyond the limits of brokers, brokers per group, clusters, and clusters per group.

    Raises LimitExceededError.
    """
    limits, name, addrs = rules.limits, registration.broker_name, tables.addrs_of(registration.broker_name)
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
    """Refuse too many topics: `named`, at most `most`, for a broker name that loses the topics `dropped`.

    Raises LimitExceededError.
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


# -- takeovers --------------------------------------------------------------------------------------------------------


def takeover_by(tables: RouteTables, registration: Registration, rules: Rules) -> TakeoverAttempted | None:
    """Return the takeover that a registration attempts; a move over the broker's own connection is allowed."""
    if rules.policy.takeover == "allow":
        return None
    key, on = registration.key, registration.connection_id
    former = [
        (other, live)
        for other, live in places_taken(tables, registration)
        if is_in_use(tables, other, live, on, rules) and not squats(other, live, registration)
    ]
    live = tables.broker_live_table.get(key)
    if live is not None and _is_crowded(tables, key, live, on, rules) and not squats(key, live, registration):
        former.append((key, live))
    return attempted_takeover(*former[0], registration.key, registration.broker_name, on, rules) if former else None


def attempted_takeover(  # noqa: PLR0913, PLR0917 - the broker, and the request that would take its place
    key: BrokerAddrInfo, live: BrokerLiveInfo, by: BrokerAddrInfo, broker_name: str, on: int, rules: Rules
) -> TakeoverAttempted:
    """Return the attempt to take a live broker's place, or to remove the broker, over a connection."""
    age, is_refused = rules.now() - live.last_update, rules.policy.takeover == "refuse"
    return TakeoverAttempted(key, live, broker_name, by.broker_addr, on, age, is_refused)


def takeover_refusal(takeover: TakeoverAttempted, what: str) -> NoPermissionError:
    """Return the error for a refused takeover; `what` is the act that was refused."""
    holder = takeover.live
    return NoPermissionError(
        f"broker {holder.broker_name} with id {holder.broker_id} at {takeover.key.broker_addr} is alive, "
        f"last seen {takeover.age_seconds:.0f} s ago; this connection may not {what}"
    )


def squats(key: BrokerAddrInfo, live: BrokerLiveInfo, registration: Registration) -> bool:
    """True if a broker is in another broker's place, and still registered by the account that the guard found there."""
    return registration.displaces.get(key) == live.account and bool(live.account)


def is_in_use(tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int, rules: Rules) -> bool:
    """True if the broker was lately seen over an open connection, other than `on`, that is or was the broker's own.

    Any peer may register under the broker's name and address, which moves the broker to the newer connection; the
    former connection continues to count.
    """
    now = rules.now()
    if live.connection_id != on and rules.is_connected(live.connection_id) and not live.is_suspect(now):
        return True
    return any(number != on for number in _former_connections(tables, key, live, now, rules))


def _is_crowded(tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int, rules: Rules) -> bool:
    """True if one more connection would push an earlier connection of the broker out of the remembered ones."""
    if on == live.connection_id or on in tables.connections.others_of(key):
        return False
    return len(_former_connections(tables, key, live, rules.now(), rules)) >= MAX_OTHER_CONNECTIONS


def _former_connections(
    tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, now: float, rules: Rules
) -> list[int]:
    """Return open connections other than the broker's own over which the broker registered and was lately seen."""
    return [
        number
        for number, other in tables.connections.others_of(key).items()
        if other.registered and not live.is_suspect(now, other.last_seen) and rules.is_connected(number)
    ]


def superseded_entries(
    tables: RouteTables, name: str, key: BrokerAddrInfo, holder: str | None
) -> Iterator[BrokerAddrInfo]:
    """Yield the live entries that end when the broker `key` registers under this name.

    These are the former holder of the broker id, at address `holder`, and the broker's own address under another
    cluster: a name is global.
    """
    for other, _ in tables.brokers_named(name):
        if other != key and other.broker_addr in (key.broker_addr, holder):
            yield other


def places_taken(tables: RouteTables, registration: Registration) -> Iterator[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
    """Yield the live brokers whose places a registration would take.

    These are the holder of the broker id, and the broker at the same address if its name, id, cluster or expiry
    differs: a broker that changes its id frees the old one at once, and a forged expiry of one second would soon free
    the place.
    """
    key, name, wanted = registration.key, registration.broker_name, registration.broker_id
    live = tables.broker_live_table.get(key)
    if live is not None and (
        (live.broker_name, live.broker_id) != (name, wanted) or registration.expiry_seconds != live.expiry_seconds
    ):
        yield key, live
    for other in superseded_entries(tables, name, key, tables.addrs_of(name).get(wanted)):
        yield other, tables.broker_live_table[other]


def replaced_by(tables: RouteTables, registration: Registration) -> dict[BrokerAddrInfo, BrokerLiveInfo]:
    """Return the live brokers that a registration replaces, with the broker's own live entry."""
    live = tables.broker_live_table.get(registration.key)
    return dict(places_taken(tables, registration)) | ({} if live is None else {registration.key: live})
