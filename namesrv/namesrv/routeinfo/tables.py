"""The route tables of a NameServer and their indexes."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeVar, cast

from namesrv.routeinfo.effects import MinBrokerIdChanged
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.revisions import DEFAULT_SPARE_TOPICS, RouteRevisions
from namesrv.routeinfo.rows import (
    CHUNK_TOPICS,
    QueueStep,
    RowChanges,
    SharedStep,
    StepsOfRows,
    TopicRow,
    queue_step,
    queues_of,
    renewal_of_rows,
    shared_steps,
)
from namesrv_remoting.bodies.base import Steps, parts
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo

K = TypeVar("K")
V = TypeVar("V")

# Connections per broker that are remembered besides its own. A hostile peer may name all brokers in heartbeats over all
# of its connections; a broker that reconnects has two or three.
MAX_OTHER_CONNECTIONS: Final = 16
# Approximate memory of a topic with a broker or two, with names and indexes, and of a live broker.
_TOPIC_BYTES: Final = 600
_BROKER_BYTES: Final = 2048
# Names of removed topics up to this number are left, since clearing them away is not worth it.
SPARE_NAMES: Final = 10_000


@dataclass(slots=True)
class Changes:
    """The changes of one operation: planned in chunks, applied in one step by `RouteTables.apply`."""

    # Topic -> its new row, None to drop the topic.
    rows: dict[str, TopicRow | None] = field(default_factory=dict)
    # (topic, broker name) -> mapping, None to drop the mapping.
    mappings: dict[tuple[str, str], TopicQueueMappingInfo | None] = field(default_factory=dict)
    # Broker name -> its group, None to drop the group.
    groups: dict[str, BrokerData | None] = field(default_factory=dict)
    # The cluster that a registration names.
    cluster_name: str | None = None
    # Live entries to drop, with their filter servers.
    dropped: list[BrokerAddrInfo] = field(default_factory=list)
    # Live entries to set, and filter servers to set (empty: to drop).
    live: dict[BrokerAddrInfo, BrokerLiveInfo] = field(default_factory=dict)
    filter_servers: dict[BrokerAddrInfo, tuple[str, ...]] = field(default_factory=dict)
    # The notice for the members of the group.
    notice: MinBrokerIdChanged | None = None


@dataclass(slots=True)
class Prepared:
    """Changes in the form in which the tables apply them."""

    changes: Changes
    row_changes: RowChanges
    # Topic -> its row, for topics that have a row after the change.
    rows: dict[str, TopicRow | None] = field(default_factory=dict)
    # Broker name -> topics that the broker gains, as keys, and topics that it loses.
    joined: dict[str, dict[str, None]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    # Differences of the tables' counts.
    queue_count: int = 0
    route_count: int = 0
    # Topic -> all its mappings by broker name.
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = field(default_factory=dict)


class OtherConnection(NamedTuple):
    """Requests of a broker over a connection other than its own; the greatest of these values takes over."""

    # True for a registration, False for heartbeats only.
    registered: bool
    # Time of the broker's last request over the connection.
    last_seen: float


class RouteTables:
    """The four tables of a NameServer and their side tables, and nothing else: no lock, no clock, no I/O."""

    def __init__(self, spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        # Cluster name -> names of its brokers, ten thousand perhaps; never an empty set.
        self.cluster_addr_table: dict[str, set[str]] = {}
        # Broker name -> the group's instances; never a group without an address.
        self.broker_addr_table: dict[str, BrokerData] = {}
        # Broker -> its live entry, for all live brokers.
        self.broker_live_table: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        # Topic -> its row; never a row without queues, never a broker that is not in broker_addr_table.
        self.topic_queue_table: dict[str, TopicRow] = {}
        # Numbers of routes (a topic on a broker is one) and of queues in all rows of topic_queue_table.
        self.route_count = 0
        self.queue_count = 0

        # Broker -> its filter servers; never an empty tuple.
        self.filter_server_table: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        # Topic -> broker name -> static-topic mapping; only where the topic has queues on that broker.
        self.topic_queue_mapping_info_table: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        # Broker name whose write permission an operator removed -> end of the removal in liveness seconds: never while
        # a master is registered; its expiry after the last heartbeat of a master that left without unregistering.
        self.wiped: dict[str, float] = {}
        # Broker -> digest of its last registration; dropped when any other change touches the broker's topics.
        self.digests: dict[BrokerAddrInfo, bytes] = {}
        # The last change of each topic.
        self.revisions = RouteRevisions(self.topic_queue_table, spare_topics)

        # Indexes make the cost of an operation depend only on the rows that it touches. Broker name -> the topics that
        # have a queue on it, as keys. Topics that were registered together lie together in memory, as do their entries
        # in every table: in the order of a set, each access would wait for memory.
        self.topics_of_broker: dict[str, dict[str, None]] = {}
        # Connection -> the brokers whose live entry names it.
        self.brokers_on_connection: dict[int, set[BrokerAddrInfo]] = {}
        # Grows whenever a broker comes, goes, or moves to another connection or account, and when a broker's connection
        # closes.
        self.ownership_changes = 0
        # Broker -> other connections of the broker -> the requests over them.
        self.other_connections: dict[BrokerAddrInfo, dict[int, OtherConnection]] = {}
        # The reverse index: connection -> brokers in `other_connections`.
        self.brokers_by_other_connection: dict[int, set[BrokerAddrInfo]] = {}
        # One string object per topic for all registrations; names of some topics without queues may be left.
        self.topic_names: dict[str, str] = {}

    def __repr__(self) -> str:
        return (
            f"<RouteTables [{len(self.cluster_addr_table)} clusters | {len(self.broker_addr_table)} groups | "
            f"{len(self.broker_live_table)} live | {len(self.topic_queue_table)} topics]>"
        )

    def estimated_bytes(self) -> int:
        """Return the approximate memory of the tables, without a loop over their entries."""
        return _TOPIC_BYTES * len(self.topic_queue_table) + _BROKER_BYTES * len(self.broker_live_table)

    def set_live(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> None:
        """Insert or replace a live entry."""
        known = self.broker_live_table.get(key)
        if known is None or (known.connection_id, known.account) != (live.connection_id, live.account):
            self.ownership_changes += 1
        if known is None or known.connection_id != live.connection_id:
            if known is not None:
                _discard(self.brokers_on_connection, known.connection_id, key)
            self.brokers_on_connection.setdefault(live.connection_id, set()).add(key)
            self._forget_other_connection(key, live.connection_id)
        self.broker_live_table[key] = live

    def _drop_live(self, key: BrokerAddrInfo) -> None:
        live = self.broker_live_table.pop(key, None)
        if live is not None:
            self.ownership_changes += 1
            _discard(self.brokers_on_connection, live.connection_id, key)
        for connection_id in list(self.other_connections.get(key, ())):
            self._forget_other_connection(key, connection_id)
        self.filter_server_table.pop(key, None)
        self.digests.pop(key, None)

    def note_other_connection(self, key: BrokerAddrInfo, connection_id: int, other: OtherConnection) -> None:
        """Note the requests of a broker over a connection that is not its own."""
        connections = self.other_connections.setdefault(key, {})
        known = connections.get(connection_id)
        if known is None and len(connections) >= MAX_OTHER_CONNECTIONS:
            self._forget_other_connection(key, min(connections, key=connections.__getitem__))
        registered = other.registered or (known is not None and known.registered)
        connections[connection_id] = OtherConnection(registered, other.last_seen)
        self.brokers_by_other_connection.setdefault(connection_id, set()).add(key)

    def _forget_other_connection(self, key: BrokerAddrInfo, connection_id: int) -> None:
        connections = self.other_connections.get(key)
        if connections is None or connections.pop(connection_id, None) is None:
            return
        if not connections:
            del self.other_connections[key]
        _discard(self.brokers_by_other_connection, connection_id, key)

    def forget_connection(self, connection_id: int) -> None:
        """Drop a closed connection from the connections that may take over a broker."""
        self.ownership_changes += connection_id in self.brokers_on_connection
        for key in list(self.brokers_by_other_connection.get(connection_id, ())):
            self._forget_other_connection(key, connection_id)

    def forget_digests(self, broker_names: Iterable[str]) -> None:
        """Drop the digests of these brokers, so that their next registration is applied even if it is unchanged."""
        for name in broker_names:
            data = self.broker_addr_table.get(name)
            if data is None:
                continue
            for cluster, names in self.cluster_addr_table.items():
                if name in names:
                    for addr in data.broker_addrs.values():
                        self.digests.pop(BrokerAddrInfo(cluster, addr), None)

    def prepare(self, changes: Changes) -> Steps[Prepared]:
        """Prepare changes, yielding about every millisecond; they must be the next changes to be applied."""
        yield from self._forget_names(changes.rows)
        yield from self._set_apart(changes)
        prepared = Prepared(changes, RowChanges(changes.rows))
        yield from self._prepare_rows(prepared)
        for number, ((topic, broker_name), mapping) in enumerate(changes.mappings.items(), start=1):
            self._prepare_mapping(prepared, topic, broker_name, mapping)
            if number % CHUNK_TOPICS == 0:
                yield
        row_changes, known = prepared.row_changes, self.broker_addr_table
        row_changes.groups_before.update(
            (name, known.get(name)) for name, group in changes.groups.items() if known.get(name) != group
        )
        # Routes also change for topics whose rows stay, if a group changes; a dropped group is in no row any more.
        moved = [name for name in self._moved(changes, row_changes) if changes.groups.get(name, True)]
        others = chain.from_iterable(self.topics_of_broker.get(name, ()) for name in moved)
        renewal = renewal_of_rows()
        for part in parts(others, CHUNK_TOPICS):
            touched = [topic for topic in dict.fromkeys(part) if topic not in row_changes.rows]
            if touched:
                row_changes.add(self._renewed(touched, renewal))
            if len(part) == CHUNK_TOPICS:
                yield
        yield from self._sort_out(prepared)
        return prepared

    def renew(self, topics: Iterable[str]) -> RowChanges:
        """Give topics new rows with equal queues, in one step: their routes change for reasons outside the tables.

        Names without a route are ignored.
        """
        row_changes, renewal = RowChanges(), renewal_of_rows()
        for part in parts([topic for topic in dict.fromkeys(topics) if topic in self.topic_queue_table], CHUNK_TOPICS):
            row_changes.add(self._renewed(part, renewal))
        self.topic_queue_table.update((topic, row) for topic, row in row_changes.rows.items() if row is not None)
        return row_changes

    def _renewed(self, topics: Sequence[str], renewal: StepsOfRows[None]) -> Sequence[SharedStep]:
        """Return the steps to new rows for topics whose queues stay the same."""
        rows = [*map(self.topic_queue_table.get, topics)]
        return [
            SharedStep(members, before, renewal.after(before, None))
            for members, before, _ in shared_steps(topics, rows, rows)
        ]

    def names_of(self, topics: Sequence[str]) -> list[str]:
        """Return the tables' own strings of topics that are about to change."""
        return [*map(self.topic_names.setdefault, topics, topics)]

    def name_of_broker(self, name: str) -> str:
        """Return the tables' own string of a broker's name: rows hold it while their topics change one by one."""
        group = self.broker_addr_table.get(name)
        return name if group is None else group.broker_name

    def _forget_names(self, rows: Collection[str]) -> Steps[None]:
        """Drop names of topics that have no row and get none."""
        if len(self.topic_names) > len(self.topic_queue_table) + len(rows) + SPARE_NAMES:
            for number, topic in enumerate(list(self.topic_names), start=1):
                if topic not in self.topic_queue_table and topic not in rows:
                    del self.topic_names[topic]
                if number % CHUNK_TOPICS == 0:
                    yield

    def _sort_out(self, prepared: Prepared) -> Steps[None]:
        """Select the topics that have a row after the change: nearly always all topics of the change, or no topic."""
        rows, gone = prepared.row_changes.rows, prepared.row_changes.gone
        prepared.rows = rows if not gone else {} if len(gone) == len(rows) else rows.copy()
        if prepared.rows and gone:
            for part in parts(gone, CHUNK_TOPICS):
                deque(map(prepared.rows.pop, part), maxlen=0)
                yield

    def _set_apart(self, changes: Changes) -> Steps[None]:
        """Give own rows to topics whose static mappings change: the responses kept on rows contain mappings."""
        rows = changes.rows
        for number, ((topic, broker_name), mapping) in enumerate(changes.mappings.items(), start=1):
            if self.topic_queue_mapping_info_table.get(topic, {}).get(broker_name) != mapping:
                row = rows[topic] if topic in rows else self.topic_queue_table.get(topic)
                if row is not None:
                    rows[self.topic_names.setdefault(topic, topic)] = TopicRow(row.queues)
            if number % CHUNK_TOPICS == 0:
                yield

    def _prepare_rows(self, prepared: Prepared) -> Steps[None]:
        row_changes = prepared.row_changes
        for part in parts(row_changes.rows, CHUNK_TOPICS):
            befores = [*map(self.topic_queue_table.get, part)]
            batch = shared_steps(part, befores, [*map(row_changes.rows.__getitem__, part)])
            row_changes.note(batch)
            for topics, before, after in batch:
                self._prepare_step(prepared, topics, queue_step(before, after))
            if len(part) == CHUNK_TOPICS:
                yield

    def _prepare_step(self, prepared: Prepared, names: Sequence[str], step: QueueStep) -> None:
        """Prepare the same step of some topics; no Python code runs per topic."""
        prepared.queue_count += step.more_queues * len(names)
        prepared.route_count += (len(step.joined) - len(step.left)) * len(names)
        for broker_name in step.joined:
            prepared.joined.setdefault(broker_name, {}).update(dict.fromkeys(names))
        for broker_name in step.left:
            prepared.left.setdefault(broker_name, []).extend(names)
            for topic in names if self.topic_queue_mapping_info_table else ():
                if topic in self.topic_queue_mapping_info_table:
                    self._prepare_mapping(prepared, topic, broker_name, None)

    def _prepare_mapping(
        self, prepared: Prepared, topic: str, broker_name: str, mapping: TopicQueueMappingInfo | None
    ) -> None:
        by_broker = prepared.mappings.get(topic)
        if by_broker is None:
            by_broker = prepared.mappings[topic] = dict(self.topic_queue_mapping_info_table.get(topic, {}))
        if mapping is None:
            by_broker.pop(broker_name, None)
        else:
            by_broker[broker_name] = mapping

    def _moved(self, changes: Changes, row_changes: RowChanges) -> set[str]:
        """Return the brokers whose addresses, zone, acting master or filter servers are about to change."""
        known = self.filter_server_table
        if any(known.get(key, ()) != servers for key, servers in changes.filter_servers.items()) or any(
            key in known for key in changes.dropped
        ):
            return {*row_changes.groups_before, *changes.groups}
        return set(row_changes.groups_before)

    def apply(self, prepared: Prepared) -> None:
        """Make the changes in one step, of which no other task sees a part: whole tables are put into whole tables."""
        changes = prepared.changes
        for key in changes.dropped:
            self._drop_live(key)
        self._put_rows(prepared)
        for topic, by_broker in prepared.mappings.items():
            _put(self.topic_queue_mapping_info_table, topic, by_broker)
        for broker_name, group in changes.groups.items():
            self._set_group(broker_name, group, changes.cluster_name)
        for key, servers in changes.filter_servers.items():
            _put(self.filter_server_table, key, servers)
        for key, live in changes.live.items():
            self.set_live(key, live)

    def _put_rows(self, prepared: Prepared) -> None:
        self.queue_count += prepared.queue_count
        self.route_count += prepared.route_count
        # Here and below no Python code runs per topic.
        self.topic_queue_table.update(cast("dict[str, TopicRow]", prepared.rows))
        deque(map(self.topic_queue_table.pop, prepared.row_changes.gone, repeat(None)), maxlen=0)
        for broker_name, topics in prepared.joined.items():
            known = self.topics_of_broker.setdefault(broker_name, topics)
            if known is not topics:
                known.update(topics)
        for broker_name, leaving in prepared.left.items():
            remaining = self.topics_of_broker[broker_name]
            if len(remaining) == len(leaving):
                del self.topics_of_broker[broker_name]
            else:
                deque(map(remaining.pop, leaving), maxlen=0)

    def _set_group(self, broker_name: str, group: BrokerData | None, cluster_name: str | None) -> None:
        if self.broker_addr_table.get(broker_name) != group:
            # A change of the group may give more weight to registrations of its other instances, such as a slave's
            # topics without its master.
            self.forget_digests((broker_name,))
        if group is None:
            self.broker_addr_table.pop(broker_name, None)
            # The name leaves all clusters in which it was registered: a name without a group would be a ghost.
            for cluster, names in list(self.cluster_addr_table.items()):
                names.discard(broker_name)
                if not names:
                    del self.cluster_addr_table[cluster]
            return
        self.broker_addr_table[broker_name] = group
        if cluster_name is not None:
            self.cluster_addr_table.setdefault(cluster_name, set()).add(broker_name)


def plan_rows(
    tables: RouteTables, changes: Changes, topics: Iterable[str], step: Callable[[TopicRow], TopicRow | None]
) -> Steps[None]:
    """Make the same step with the row of each of these topics, yielding about every millisecond."""

    def stays_if_equal(row: TopicRow | None, _: None) -> TopicRow | None:
        after = step(cast("TopicRow", row))
        return row if queues_of(after) == queues_of(row) else after

    steps = StepsOfRows(stays_if_equal)
    for names in parts(topics, CHUNK_TOPICS):
        rows = [*map(tables.topic_queue_table.__getitem__, names)]
        for members, row, _ in shared_steps(names, rows, rows):
            after = steps.after(row, None)
            if after is not row:
                changes.rows.update(dict.fromkeys(members, after))
        if len(names) == CHUNK_TOPICS:
            yield


def _put(table: dict[K, V], key: K, value: V) -> None:
    if value:
        table[key] = value
    else:
        table.pop(key, None)


def _discard(index: dict[int, set[BrokerAddrInfo]], connection_id: int, key: BrokerAddrInfo) -> None:
    keys = index[connection_id]
    keys.discard(key)
    if not keys:
        del index[connection_id]
