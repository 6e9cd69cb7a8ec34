"""Checks of registrations before they are planned: contradictions to the tables, limits, quotas and shares."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo, Registration, RouteOptions
from namesrv.routeinfo.registration import addrs_after, creates_routes, displaced, topics_dropped
from namesrv.routeinfo.rows import CHUNK_TOPICS
from namesrv.routeinfo.shares import Owner, Sizes, exceeded_share, may_exceed_a_share, sizes_of
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.codes import STALE_FIELD
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, SystemError_


@dataclass(slots=True)
class TableLimits:
    """Limits of the tables; settings/model.py explains each number. A route is a topic on a broker."""

    max_brokers: int
    max_topics: int
    max_routes: int
    max_topics_per_broker: int
    # The largest deployments have tens of clusters.
    max_clusters: int = 1_000


class LimitExceededError(BadRequestError):
    """The tables would hold too much (code 1); `reason` names the limit in a word, for counters."""

    def __init__(self, count: int, limit: int, what: str, reason: str | None = None) -> None:
        super().__init__(f"{count} {what}, limit {limit}")
        self.reason = reason or what.replace(" ", "_")


@dataclass(slots=True)
class TakeoverPolicy:
    """The setting for requests that would take a live broker's place, or remove the broker."""

    takeover: Literal["allow", "warn", "refuse"] = "allow"


@dataclass(slots=True)
class TableQuotas:
    """Limits for the brokers of one cluster or account; 0 means no limit. A topic counts once for each broker."""

    mode: Literal["off", "observe", "enforce"] = "off"
    brokers: int = 0
    topics: int = 0


class _Scope(NamedTuple):
    """The brokers of one cluster or account."""

    word: str
    name: str
    contains: Callable[[BrokerAddrInfo, BrokerLiveInfo], bool]


def over_quota(
    tables: RouteTables, registration: Registration, options: RouteOptions, quotas: TableQuotas
) -> Steps[tuple[str, str] | None]:
    """Return the quota that a registration exceeds, as a word and a sentence; None without excess or addition."""
    cluster, account = registration.cluster_name, registration.account
    scopes = [_Scope("cluster", cluster, lambda key, _: key.cluster_name == cluster)]
    if account:
        scopes.append(_Scope("account", account, lambda _, live: live.account == account))
    added = yield from _topics_added(tables, registration, options)
    replaced = dict(displaced_by(tables, registration))
    live = tables.broker_live_table.get(registration.key)
    if live is not None:
        replaced[registration.key] = live
    for scope in scopes:
        excess = yield from _over_scope(tables, registration, scope, quotas, added, replaced=replaced)
        if excess is not None:
            return excess
    return None


def _over_scope(  # noqa: PLR0913 - the registration, its scope and the quotas
    tables: RouteTables,
    registration: Registration,
    scope: _Scope,
    quotas: TableQuotas,
    added: int,
    *,
    replaced: Mapping[BrokerAddrInfo, BrokerLiveInfo],
) -> Steps[tuple[str, str] | None]:
    is_new = not any(scope.contains(key, live) for key, live in replaced.items())
    if not (quotas.brokers and is_new) and not (quotas.topics and added > 0):
        return None
    # The loop visits all brokers, since a cluster often holds all of them; but only for registrations that add
    # something, which are rare.
    brokers, names = 0, {registration.broker_name}
    for number, (key, live) in enumerate(list(tables.broker_live_table.items()), start=1):
        if key not in replaced and scope.contains(key, live):
            brokers += 1
            names.add(live.broker_name)
        if number % CHUNK_TOPICS == 0:
            yield
    if quotas.brokers and is_new and brokers + 1 > quotas.brokers:
        message = f"{brokers + 1} brokers of {scope.word} {scope.name}, limit {quotas.brokers}"
        return f"brokers_per_{scope.word}", message
    topics = sum(len(tables.topics.of_broker.get(name, ())) for name in names) + added
    if quotas.topics and added > 0 and topics > quotas.topics:
        return f"topics_per_{scope.word}", f"{topics} topics of {scope.word} {scope.name}, limit {quotas.topics}"
    return None


def _topics_added(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[int]:
    """Return how many topics the broker name would gain; negative if a registration drops more topics than it adds."""
    name = registration.broker_name
    group = tables.broker_addr_table.get(name)
    if not creates_routes(registration, addrs_after(registration, {} if group is None else group.broker_addrs)):
        return 0
    present = tables.topics.of_broker.get(name, {})
    new: set[str] = set()
    for number, topic in enumerate(registration.body.topic_configs, start=1):
        if topic.topic_name not in present:
            new.add(topic.topic_name)
        if number % CHUNK_TOPICS == 0:
            yield
    dropped = yield from topics_dropped(tables, registration, options)
    return len(new) - len(dropped)


def check_registration(
    tables: RouteTables,
    registration: Registration,
    options: RouteOptions,
    limits: TableLimits,
    *,
    is_connected: Callable[[int], bool],
) -> Steps[None]:
    """Refuse a registration that must not be applied, before it is planned.

    Raises:
        QueryNotFoundError: a delta of a broker that is not known under this agent: it has to register fully.
        BadRequestError: it is older than what is known.
        LimitExceededError: the tables would hold too much.
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
    _check_sequence(registration, live)
    if holder is not None and holder != registration.broker_addr:
        _check_state_version(tables, registration, holder, is_connected)
    is_one_topic = bool(configs) and all(topic.topic_name == configs[0].topic_name for topic in configs)
    if holder is None and is_one_topic and not registration.is_native:
        raise SystemError_("register broker failed", ext_fields={})
    if live is None and holder is None:
        # A registration that takes another broker's place does not increase the number of brokers.
        _check(len(tables.broker_live_table) + 1, limits.max_brokers, "brokers")
    if registration.cluster_name not in tables.cluster_addr_table:
        _check(len(tables.cluster_addr_table) + 1, limits.max_clusters, "clusters")
    if creates_routes(registration, addrs_after(registration, addrs)):
        named = (topic.topic_name for topic in configs)
        dropped = topics_dropped(tables, registration, options)
        yield from check_topics(tables, limits, name, named, len(configs), dropped)


def check_shares(  # noqa: PLR0913 - the registration, the tables and their limits
    tables: RouteTables,
    registration: Registration,
    options: RouteOptions,
    limits: TableLimits,
    *,
    owners: Sequence[Owner],
    held: Callable[[Owner], Steps[Sizes]],
) -> Steps[None]:
    """Refuse a registration beyond the share of one peer address or account. Raises LimitExceededError."""
    bounds = Sizes(limits.max_clusters, limits.max_brokers, limits.max_topics, limits.max_routes)
    most = len(registration.body.topic_configs)
    if not may_exceed_a_share(sizes_of(tables), Sizes(1, 1, most, most), bounds):
        # The tables are nearly always empty enough: nothing has to be counted.
        return
    added = yield from _rows_added(tables, registration, options)
    for owner in owners:
        rows = yield from held(owner)
        excess = exceeded_share(owner, rows, sizes_of(tables), added, bounds)
        if excess is not None:
            what, reason = f"{excess.table} of {owner.kind} {owner.name}", f"{excess.table}_per_{owner.kind}"
            raise LimitExceededError(excess.rows, excess.share, what, reason)


def _rows_added(tables: RouteTables, registration: Registration, options: RouteOptions) -> Steps[Sizes]:
    group = tables.broker_addr_table.get(registration.broker_name)
    is_broker_new = registration.key not in tables.broker_live_table and (
        group is None or registration.broker_id not in group.broker_addrs
    )
    routes = yield from _topics_added(tables, registration, options)
    topics = 0
    for number, topic in enumerate(registration.body.topic_configs, start=1):
        topics += topic.topic_name not in tables.topic_queue_table
        if number % CHUNK_TOPICS == 0:
            yield
    return Sizes(registration.cluster_name not in tables.cluster_addr_table, is_broker_new, topics, routes)


def _check_sequence(registration: Registration, live: BrokerLiveInfo | None) -> None:
    """Refuse a registration that its agent sent before the registered one.

    Sequences are compared on the broker's own connection and on older ones. A registration over a newer connection
    always counts as later, so that a forged sequence cannot lock an agent out.
    """
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


def _check_state_version(
    tables: RouteTables, registration: Registration, holder: str, is_connected: Callable[[int], bool]
) -> None:
    """Refuse a broker of an earlier term when the broker at address `holder` has the requested id."""
    held = _state_version_of(tables, registration, holder, is_connected)
    offered = 0 if registration.body.data_version is None else registration.body.data_version.state_version
    if held > offered:
        raise BadRequestError(
            f"field stateVersion: {offered} is lower than {held} of {holder}, "
            f"which holds id {registration.broker_id} of {registration.broker_name}",
            ext_fields={},
        )


def _state_version_of(
    tables: RouteTables, registration: Registration, holder: str, is_connected: Callable[[int], bool]
) -> int:
    """Return the state version below which other brokers cannot take the holder's id; 0 without protection.

    A state version protects the holder against registrations of the same account, while the holder's own connection is
    open. The state version of a broker that is registered over two open connections does not count, since any peer may
    have sent it.
    """
    key = BrokerAddrInfo(registration.cluster_name, holder)
    live = tables.broker_live_table.get(key)
    if live is None or live.data_version is None or live.account != registration.account:
        return 0
    others = tables.connections.others.get(key, {}).items()
    is_contested = any(other.registered and is_connected(number) for number, other in others)
    if is_contested or not is_connected(live.connection_id):
        return 0
    return live.data_version.state_version


def displaced_by(tables: RouteTables, registration: Registration) -> Iterator[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
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
    group = tables.broker_addr_table.get(name)
    holder = None if group is None else group.broker_addrs.get(wanted)
    for other in displaced(tables, name, key, holder):
        yield other, tables.broker_live_table[other]


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
    if count > limit:
        raise LimitExceededError(count, limit, what)
