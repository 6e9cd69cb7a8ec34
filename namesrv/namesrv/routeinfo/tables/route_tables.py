"""The route tables of a NameServer and their indexes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from namesrv.routeinfo.tables.connections import BrokerConnections
from namesrv.routeinfo.tables.effects import MinBrokerIdChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.revisions import DEFAULT_SPARE_TOPICS, RouteRevisions
from namesrv.routeinfo.tables.topic_table import NewMappings, NewRows, PreparedTopics, TopicTable
from namesrv.routeinfo.tables.versions import RegistrationDigests, TableVersions
from namesrv.routeinfo.tables.write_removal import WriteRemoval
from namesrv_remoting.address_views import BrokerIdentity
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses
from namesrv_remoting.bodies.base import Steps
from namesrv_remoting.bodies.route import BrokerData

# Approximate memory of a topic with a broker or two, with names and indexes, of a live broker, and of a logical queue
# of a static topic.
_TOPIC_BYTES: Final = 600
_BROKER_BYTES: Final = 2048
_MAPPED_BYTES: Final = 120


@dataclass(slots=True)
class Changes:
    """The changes of one operation: planned in chunks, applied in one step by `RouteTables.apply`."""

    rows: NewRows = field(default_factory=dict)
    mappings: NewMappings = field(default_factory=dict)
    # Broker name -> its group, None to drop the group.
    groups: dict[str, BrokerData | None] = field(default_factory=dict)
    # The cluster that a registration names.
    cluster_name: str | None = None
    # Live entries to drop, with their filter servers.
    dropped: list[BrokerAddrInfo] = field(default_factory=list)
    # Live entries to set, and filter servers to set (empty: to drop).
    live: dict[BrokerAddrInfo, BrokerLiveInfo] = field(default_factory=dict)
    filter_servers: dict[BrokerAddrInfo, tuple[str, ...]] = field(default_factory=dict)
    # Native brokers that lose a topic which an operator deletes.
    incomplete: list[BrokerAddrInfo] = field(default_factory=list)
    # The notice for the members of the group.
    notice: MinBrokerIdChanged | None = None


@dataclass(slots=True)
class Prepared:
    """Changes in the form in which the tables apply them."""

    changes: Changes
    topics: PreparedTopics


class RouteTables:
    """The four tables of a NameServer and what follows from them, and nothing else: no lock, no clock, no I/O."""

    def __init__(self, spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        # -- the four tables --
        # Cluster name -> names of its broker groups, ten thousand perhaps; never an empty set.
        self.cluster_addr_table: dict[str, set[str]] = {}
        # Broker name -> the group's instances; never a group without an address.
        self.broker_addr_table: dict[str, BrokerData] = {}
        # Broker -> its live entry, for all live brokers.
        self.broker_live_table: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        # Topic -> its row: the rows of `topics`, which alone modifies them. No row has a broker that is not in
        # broker_addr_table.
        self.topics = TopicTable()
        self.topic_queue_table = self.topics.rows

        # -- side tables --
        # Broker -> its filter servers; never an empty tuple.
        self.filter_server_table: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        # Broker group whose write permission an operator removed -> the removal.
        self.write_removed: dict[str, WriteRemoval] = {}
        # Live native brokers that have to register their topics again, since an operator deleted some or made them
        # writable, or a removal of the write permission has expired: their heartbeats have no topics, so the response
        # asks for a full registration. RocketMQ's brokers send all topics every 30 s.
        self.incomplete: set[BrokerAddrInfo] = set()

        # The connections of the live brokers, and others that may take over.
        self.connections = BrokerConnections()

        # -- their changes --
        # The last change of each topic's route.
        self.revisions = RouteRevisions(self.topic_queue_table, spare_topics)
        # Counters of registrations, membership and ownership.
        self.versions = TableVersions()
        # Broker -> digest of its last registration, if an equal one would change nothing.
        self.digests = RegistrationDigests()

    def __repr__(self) -> str:
        return (
            f"<RouteTables [{len(self.cluster_addr_table)} clusters | {len(self.broker_addr_table)} groups | "
            f"{len(self.broker_live_table)} live | {len(self.topic_queue_table)} topics]>"
        )

    def estimated_bytes(self) -> int:
        """Return the approximate memory of the tables, without a loop over their entries."""
        topics, brokers, mapped = len(self.topic_queue_table), len(self.broker_live_table), self.topics.mapped_count
        return _TOPIC_BYTES * topics + _BROKER_BYTES * brokers + _MAPPED_BYTES * mapped

    def name_of_broker(self, name: str) -> str:
        """Return the tables' own string of a broker's name, which the rows of all its topics share."""
        group = self.broker_addr_table.get(name)
        return name if group is None else group.broker_name

    def addrs_of(self, broker_name: str) -> Mapping[int, str]:
        """Return the addresses of a group by id; empty without a group."""
        group = self.broker_addr_table.get(broker_name)
        return {} if group is None else group.broker_addrs

    def advertised_of(self, broker: BrokerIdentity, broker_addr: str) -> AdvertisedAddresses:
        """Return the addresses that a broker advertises, if it is registered at this address."""
        for cluster in self.clusters_of(broker.broker_name):
            # A group keeps its first cluster's name when a broker of it registers under another one. In a cluster with
            # a broker of that name, another broker may have the address.
            live = self.broker_live_table.get(BrokerAddrInfo(cluster, broker_addr))
            if live is not None and live.broker_name == broker.broker_name:
                return live.advertised
        return NOTHING_ADVERTISED

    def clusters_of(self, broker_name: str) -> list[str]:
        """Return the clusters that have a broker group of this name: brokers of one group may name several."""
        return [cluster for cluster, names in self.cluster_addr_table.items() if broker_name in names]

    def brokers_named(self, name: str) -> Iterator[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
        """Yield the live brokers of a group, in all clusters."""
        for cluster in self.clusters_of(name):
            for addr in self.addrs_of(name).values():
                key = BrokerAddrInfo(cluster, addr)
                live = self.broker_live_table.get(key)
                if live is not None and live.broker_name == name:
                    yield key, live

    def set_live(self, key: BrokerAddrInfo, live: BrokerLiveInfo) -> None:
        """Insert or replace a live entry."""
        known = self.broker_live_table.get(key)
        self.versions.live_changed(known, live)
        if known is None or known.connection_id != live.connection_id:
            self.connections.set_own(key, live.connection_id, None if known is None else known.connection_id)
        self.broker_live_table[key] = live

    def _drop_live(self, key: BrokerAddrInfo) -> None:
        live = self.broker_live_table.pop(key, None)
        if live is not None:
            self.versions.live_changed(live, None)
            self.connections.drop_broker(key, live.connection_id)
        self.filter_server_table.pop(key, None)
        self.incomplete.discard(key)
        self.digests.drop(key)

    def forget_digests(self, broker_names: Iterable[str]) -> None:
        """Drop the digests of these brokers, so that their next registration is applied even if it is unchanged."""
        for name in broker_names:
            for key, _ in self.brokers_named(name):
                self.digests.drop(key)

    def need_topics_of(self, broker_name: str) -> None:
        """Have all brokers of a group register their topics again, which have other permissions here."""
        self.forget_digests((broker_name,))
        self.incomplete.update(key for key, live in self.brokers_named(broker_name) if live.is_native)

    def prepare(self, changes: Changes) -> Steps[Prepared]:
        """Prepare changes, yielding about every millisecond; they must be the next changes to be applied."""
        groups, known = changes.groups, self.broker_addr_table
        groups_before = {name: known.get(name) for name, group in groups.items() if known.get(name) != group}
        moved = groups.keys() if self._changes_more_than_groups(changes) else groups_before.keys()
        # A changed group, and filter servers or advertised addresses of its brokers, also change routes of topics whose
        # queues stay; no row contains a dropped group.
        moved_groups = [name for name in moved if groups[name] is not None]
        yield from self.revisions.settle()
        topics = yield from self.topics.prepare(changes.rows, changes.mappings, moved_groups)
        topics.row_changes.groups_before.update(groups_before)
        return Prepared(changes, topics)

    def _changes_more_than_groups(self, changes: Changes) -> bool:
        """True if the changes modify the filter servers of a broker, or the addresses that it advertises."""
        filter_servers = {**dict.fromkeys(changes.dropped, ()), **changes.filter_servers}
        advertised = dict.fromkeys(changes.dropped, NOTHING_ADVERTISED)
        advertised.update((key, live.advertised) for key, live in changes.live.items())
        return any(self.filter_server_table.get(key, ()) != servers for key, servers in filter_servers.items()) or any(
            self._advertised_by(key) != addresses for key, addresses in advertised.items()
        )

    def _advertised_by(self, key: BrokerAddrInfo) -> AdvertisedAddresses:
        live = self.broker_live_table.get(key)
        return NOTHING_ADVERTISED if live is None else live.advertised

    def apply(self, prepared: Prepared) -> None:
        """Make the changes in one step, of which no other task sees a part."""
        changes = prepared.changes
        for key in changes.dropped:
            self._drop_live(key)
        for broker_name, group in changes.groups.items():
            self._set_group(broker_name, group, changes.cluster_name)
        for key, servers in changes.filter_servers.items():
            if servers:
                self.filter_server_table[key] = servers
            else:
                self.filter_server_table.pop(key, None)
        for key, live in changes.live.items():
            self.set_live(key, live)
        self.incomplete.update(changes.incomplete)
        self.topics.apply(prepared.topics)

    def _set_group(self, broker_name: str, group: BrokerData | None, cluster_name: str | None) -> None:
        if self.broker_addr_table.get(broker_name) != group:
            # After a change of the group, registrations of its other brokers may make routes: those of the prime slave,
            # for example, when the master has left.
            self.forget_digests((broker_name,))
        if group is None:
            self.broker_addr_table.pop(broker_name, None)
            # The name leaves all clusters in which it was registered: clusters only have names of existing groups.
            for cluster, names in list(self.cluster_addr_table.items()):
                names.discard(broker_name)
                if not names:
                    del self.cluster_addr_table[cluster]
            return
        self.broker_addr_table[broker_name] = group
        if cluster_name is not None:
            self.cluster_addr_table.setdefault(cluster_name, set()).add(broker_name)
