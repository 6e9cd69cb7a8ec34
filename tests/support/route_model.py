"""A slow model of a NameServer: plain dictionaries, and every operation looks at everything.

It follows the reference's description of `RouteInfoManager` with our deviations, without indexes, chunks or fences.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from namesrv.routeinfo.manager import OTHER_CONNECTION_NOTE_SECONDS
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion, TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, ResponseError, SystemError_

WRITE = 2


@dataclass
class Group:
    """The instances of a broker name."""

    cluster_name: str
    addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    acts: bool = False


class RouteModel:
    """The expected contents of a NameServer's tables."""

    def __init__(self) -> None:
        # every registration, also an unchanged one, gets a new generation
        self.live_brokers: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        self._generation = 0
        self.groups: dict[str, Group] = {}
        self.clusters: dict[str, set[str]] = {}
        # topic -> broker name -> queues
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.mappings: dict[tuple[str, str], TopicQueueMappingInfo] = {}
        self.filter_servers: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        # native brokers whose topics an operator changed since their last full registration
        self.incomplete: set[BrokerAddrInfo] = set()
        # broker name -> when its removed write permission comes back
        self.write_removed: dict[str, float] = {}
        # the same broker name -> the expiries of the slaves that left since
        self.slaves_left: dict[str, list[float]] = {}
        # names in `write_removed` whose permission comes back after the expiry of a master that left
        self.masters_left: set[str] = set()
        # broker -> connection -> (registered over it, last heartbeat over it), for its other connections
        self.other_connections: dict[BrokerAddrInfo, dict[int, tuple[bool, float]]] = {}

    # -- connections --------------------------------------------------------------------------------------------------

    def note_other_connection(
        self, key: BrokerAddrInfo, connection_id: int, received_at: float, *, registered: bool
    ) -> None:
        """Record a registration or heartbeat over another connection of the broker."""
        connections = self.other_connections.setdefault(key, {})
        if connection_id not in connections and len(connections) == MAX_OTHER_CONNECTIONS:
            if not registered:
                return
            del connections[min(connections, key=connections.__getitem__)]
        connections[connection_id] = (registered or connections.get(connection_id, (False,))[0], received_at)

    def move(self, key: BrokerAddrInfo, connection_id: int) -> None:
        self.live_brokers[key] = replace(self.live_brokers[key], connection_id=connection_id)
        self.other_connections.get(key, {}).pop(connection_id, None)

    def close(self, closed: int, now: float, is_open: Callable[[int], bool]) -> None:
        """Close a connection: its brokers move to the newest of their other open connections."""
        for key, live in list(self.live_brokers.items()):
            connections = self.other_connections.get(key, {})
            connections.pop(closed, None)
            others = [
                (*noted, number)
                for number, noted in connections.items()
                if is_open(number) and noted[1] + live.expiry_seconds >= now
            ]
            if live.connection_id == closed and others:
                self.move(key, max(others)[-1])

    # -- registration -------------------------------------------------------------------------------------------------

    def refusal(self, registration: Registration, is_open: Callable[[int], bool]) -> type[ResponseError] | None:
        live = self.live_brokers.get(registration.key)
        addrs = self.groups[registration.broker_name].addrs if registration.broker_name in self.groups else {}
        holder = addrs.get(registration.broker_id)
        if registration.kind == "delta":
            known_as = None if live is None else (live.broker_name, live.agent_id)
            if known_as != (registration.broker_name, registration.agent_id) or holder != registration.broker_addr:
                return QueryNotFoundError
        known_seq = 0 if live is None or live.agent_id != registration.agent_id else live.registration_seq or 0
        is_later = live is not None and registration.connection_id > live.connection_id
        if registration.agent_id is not None and (registration.registration_seq or 0) < known_seq and not is_later:
            # an unchanged registration, which does not wait for the lock, has overtaken this one
            return BadRequestError
        if holder is not None and holder != registration.broker_addr:
            held = self._held_state_version(BrokerAddrInfo(registration.cluster_name, holder), is_open)
            if held > _state_version(registration.body.data_version):
                return BadRequestError
        if (
            holder is None
            and not registration.is_native
            and len({item.topic_name for item in registration.body.topic_configs}) == 1
        ):
            return SystemError_
        return None

    def _held_state_version(self, key: BrokerAddrInfo, is_open: Callable[[int], bool]) -> int:
        """The state version that protects a broker's id; 0 when another open connection registered it as well."""
        live = self.live_brokers.get(key)
        connections = self.other_connections.get(key, {}).items()
        is_contested = any(registered and is_open(number) for number, (registered, _) in connections)
        if live is None or is_contested or not is_open(live.connection_id):
            return 0
        return _state_version(live.data_version)

    def register(
        self, registration: Registration, options: RouteOptions, received_at: float, is_open: Callable[[int], bool]
    ) -> RegisterResult:
        """Apply an admitted registration that keeps the broker's name."""
        name, key = registration.broker_name, registration.key
        awaits_any = name not in self.groups and name not in self.masters_left
        if name in self.write_removed and (registration.broker_id == 0 or awaits_any):
            self.remove_write(name)
        group = self.groups.setdefault(name, Group(registration.cluster_name))
        self.clusters.setdefault(registration.cluster_name, set()).add(name)
        holder = group.addrs.get(registration.broker_id)
        for other, live in list(self.live_brokers.items()):
            if other != key and live.broker_name == name and other.broker_addr in (holder, key.broker_addr):
                self._drop_broker(other)
        self._join(group, registration)
        if registration.broker_id == 0 or (
            registration.enable_acting_master is not None and registration.broker_id == min(group.addrs)
        ):
            self._register_topics(registration, options, acts=registration.broker_id != 0 and group.acts)
        self.incomplete -= {key} if registration.kind == "full" else set()
        before = self.live_brokers.get(key)
        self.live_brokers[key] = BrokerLiveInfo(
            name,
            registration.broker_id,
            received_at,
            registration.expiry_seconds,
            registration.body.data_version,
            registration.connection_id,
            registration.ha_server_addr,
            self.next_generation(),
            registration.agent_id,
            registration.registration_seq,
            registration.is_native,
            None if before is None else before.state,
        )
        if before is not None and is_open(before.connection_id):
            # the newest of the connections that registered it
            older, newer = sorted(
                ((registration.connection_id, received_at), (before.connection_id, before.last_update))
            )
            self.move(key, newer[0])
            if older[0] != newer[0]:
                self.note_other_connection(key, *older, registered=True)
        self.move(key, self.live_brokers[key].connection_id)
        if registration.body.filter_servers:
            self.filter_servers[key] = registration.body.filter_servers
        elif registration.body.filter_servers is not None:
            self.filter_servers.pop(key, None)
        master = self.live_brokers.get(BrokerAddrInfo(registration.cluster_name, group.addrs.get(0, "")))
        if registration.broker_id == 0 or master is None:
            return RegisterResult()
        return RegisterResult(group.addrs[0], master.ha_server_addr)

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _join(self, group: Group, registration: Registration) -> None:
        addr = registration.broker_addr
        was_master = group.addrs.get(0) == addr
        group.zone_name = registration.zone_name
        group.acts = registration.enable_acting_master is True
        group.addrs = {number: other for number, other in group.addrs.items() if other != addr}
        group.addrs[registration.broker_id] = addr
        if was_master and group.acts and min(group.addrs) > 0:
            self._set_perms(registration.broker_name, lambda perm: perm & ~WRITE)

    def _register_topics(self, registration: Registration, options: RouteOptions, *, acts: bool) -> None:
        name, body = registration.broker_name, registration.body
        for topic in list(self.topics):
            if _is_dropped(registration, topic, options):
                self._take_out(topic, name)
        for item in body.topic_configs:
            perm = item.perm & ~WRITE if acts or name in self.write_removed else item.perm
            queues = QueueData(name, item.read_queue_nums, item.write_queue_nums, perm, item.topic_sys_flag)
            self.topics.setdefault(item.topic_name, {})[name] = queues
        if registration.is_native and registration.kind == "full":
            for topic, by in list(self.mappings):
                if by == name and topic not in body.mappings:
                    del self.mappings[topic, by]
        for topic, mapping in body.mappings.items():
            if name in self.topics.get(topic, {}):
                self.mappings[topic, name] = mapping

    # -- staying and leaving ------------------------------------------------------------------------------------------

    def heartbeat(
        self, key: BrokerAddrInfo, now: float, connection_id: int, state: Any, is_open: Callable[[int], bool]
    ) -> None:
        """Apply a heartbeat: it never moves a broker whose own connection is open."""
        own = self.live_brokers[key].connection_id
        self.refresh(key, now, own, state)
        if connection_id != own and is_open(connection_id):
            known = self.other_connections.get(key, {}).get(connection_id)
            if is_open(own) and known is not None and now - known[1] < OTHER_CONNECTION_NOTE_SECONDS:
                pass
            elif is_open(own):
                self.note_other_connection(key, connection_id, now, registered=False)
            else:
                self.move(key, connection_id)

    def refresh(self, key: BrokerAddrInfo, now: float, connection_id: int, state: Any = None, **fields: Any) -> None:
        live = self.live_brokers[key]
        new_state = live.state if state is None else state
        self.live_brokers[key] = replace(live, last_update=now, connection_id=connection_id, state=new_state, **fields)

    def silent(self, now: float) -> dict[BrokerAddrInfo, BrokerLiveInfo]:
        return {key: live for key, live in self.live_brokers.items() if live.last_update + live.expiry_seconds < now}

    def end_write_removals(self, now: float) -> None:
        """Restore the write permission of brokers that were gone for their expiry."""
        for name in [name for name, ends in self.write_removed.items() if ends < now]:
            del self.write_removed[name]
            self._need_topics_of(name)

    def remove_write(self, name: str) -> None:
        """Remove the write permission until brokers leave."""
        self.write_removed[name], self.slaves_left[name] = math.inf, []
        self.masters_left.discard(name)

    def remove(self, key: BrokerAddrInfo, *, unregistered: bool = False) -> None:
        """Remove a live broker and all data that exists because of it."""
        live = self._drop_broker(key)
        name, group = live.broker_name, self.groups[live.broker_name]
        group.addrs = {number: addr for number, addr in group.addrs.items() if addr != key.broker_addr}
        expires = live.last_update + live.expiry_seconds
        if self.write_removed.get(name) == math.inf and not unregistered and live.broker_id != 0:
            self.slaves_left[name].append(expires)
        if name in self.write_removed and (live.broker_id == 0 or not group.addrs):
            if unregistered:
                del self.write_removed[name]
            elif self.write_removed[name] == math.inf:
                if live.broker_id == 0:
                    self.write_removed[name] = expires
                    self.masters_left.add(name)
                else:
                    self.write_removed[name] = max(self.slaves_left[name])
        if group.addrs:
            if group.acts and min(group.addrs) > 0:
                self._set_perms(name, lambda perm: perm & ~WRITE)
            return
        del self.groups[name]
        self.clusters = {cluster: names - {name} for cluster, names in self.clusters.items() if names - {name}}
        for topic in list(self.topics):
            self._take_out(topic, name)

    def _drop_broker(self, key: BrokerAddrInfo) -> BrokerLiveInfo:
        self.filter_servers.pop(key, None)
        self.other_connections.pop(key, None)
        self.incomplete.discard(key)
        return self.live_brokers.pop(key)

    # -- topics -------------------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster_name: str | None) -> None:
        for name in list(self.topics.get(topic, ())):
            if cluster_name is None or name in self.clusters.get(cluster_name, ()):
                self._take_out(topic, name)
                self._need_topics_of(name)

    def _need_topics_of(self, name: str) -> None:
        self.incomplete.update(
            key for key, live in self.live_brokers.items() if live.broker_name == name and live.is_native
        )

    def register_topic(self, topic: str, queue_datas: list[QueueData]) -> None:
        known = list(self.topics.get(topic, {}).values())
        names = [queues.broker_name for queues in queue_datas]
        first_unknown = next((at for at, name in enumerate(names) if name not in self.groups), len(names))
        if not known and first_unknown < len(names):
            return
        for queues in queue_datas[:first_unknown]:
            perm = queues.perm & ~WRITE if queues.broker_name in self.write_removed else queues.perm
            read, write, flags = queues.read_queue_nums, queues.write_queue_nums, queues.topic_sys_flag
            stored = QueueData(queues.broker_name, read, write, perm, flags)
            self.topics.setdefault(topic, {})[queues.broker_name] = stored

    def wipe(self, name: str) -> int:
        if name in self.groups:
            self.remove_write(name)
        return self._set_perms(name, lambda perm: perm & ~WRITE)

    def add(self, name: str) -> int:
        self.write_removed.pop(name, None)
        self._need_topics_of(name)
        return self._set_perms(name, lambda perm: 6)

    def _set_perms(self, name: str, new_perm: Any) -> int:
        count = 0
        for by_name in self.topics.values():
            queues = by_name.get(name)
            if queues is not None:
                count += 1
                by_name[name] = QueueData(
                    name, queues.read_queue_nums, queues.write_queue_nums, new_perm(queues.perm), queues.topic_sys_flag
                )
        return count

    def _take_out(self, topic: str, name: str) -> None:
        if self.topics[topic].pop(name, None) is not None:
            self.mappings.pop((topic, name), None)
        if not self.topics[topic]:
            del self.topics[topic]

    # -- looking ------------------------------------------------------------------------------------------------------

    def route(self, topic: str, options: RouteOptions, order_conf: dict[str, str]) -> TopicRouteData | None:
        by_name = self.topics.get(topic)
        if by_name is None:
            return None
        groups, filter_servers = [], {}
        for name in sorted(by_name):
            group = self.groups[name]
            addrs = dict(group.addrs)
            if options.support_acting_master and group.acts and 0 not in addrs and not by_name[name].perm & WRITE:
                addrs[0] = addrs.pop(min(addrs))
            groups.append(BrokerData(group.cluster_name, name, addrs, group.zone_name, group.acts))
            for addr in addrs.values():
                key = BrokerAddrInfo(group.cluster_name, addr)
                if key in self.filter_servers and self.live_brokers[key].broker_name == name:
                    filter_servers[addr] = self.filter_servers[key]
        return TopicRouteData(
            groups,
            [by_name[name] for name in sorted(by_name)],
            filter_servers,
            order_conf.get(topic) if options.order_message_enable else None,
            {name: mapping for (of, name), mapping in self.mappings.items() if of == topic} or None,
        )

    def facts(self) -> dict[str, Any]:
        """The whole state, comparable with `facts_of` the tables."""
        return {
            "live_brokers": _without_generations(self.live_brokers),
            "groups": copy.deepcopy(self.groups),
            "clusters": copy.deepcopy(self.clusters),
            "topics": {topic: dict(by_name) for topic, by_name in self.topics.items()},
            "mappings": dict(self.mappings),
            "filter_servers": dict(self.filter_servers),
            "incomplete": set(self.incomplete),
            "write_removed": set(self.write_removed),
            "other_connections": {
                key: dict(connections) for key, connections in self.other_connections.items() if connections
            },
        }


def _is_dropped(registration: Registration, topic: str, options: RouteOptions) -> bool:
    """True when a registration removes its broker from a topic."""
    if registration.kind == "delta":
        return topic in registration.body.deleted_topics
    is_whole = registration.is_native or (
        options.delete_topic_with_broker_registration and not registration.body.mappings
    )
    return is_whole and topic not in {item.topic_name for item in registration.body.topic_configs}


def _state_version(version: DataVersion | None) -> int:
    return 0 if version is None else version.state_version


def facts_of(tables: RouteTables) -> dict[str, Any]:
    """The contents of tables, in the model's form."""
    return {
        "live_brokers": _without_generations(tables.broker_live_table),
        "groups": {
            name: Group(data.cluster, dict(data.broker_addrs), data.zone_name, data.enable_acting_master)
            for name, data in tables.broker_addr_table.items()
        },
        "clusters": {cluster: set(names) for cluster, names in tables.cluster_addr_table.items()},
        "topics": {
            topic: {queues.broker_name: queues for queues in row.queues}
            for topic, row in tables.topic_queue_table.items()
        },
        "mappings": {
            (topic, name): mapping
            for topic, by_name in tables.topics.mappings.items()
            for name, mapping in by_name.items()
        },
        "filter_servers": dict(tables.filter_server_table),
        "incomplete": set(tables.incomplete),
        "write_removed": set(tables.write_removed),
        "other_connections": {key: dict(connections) for key, connections in tables.connections.others.items()},
    }


def _without_generations(live_brokers: Mapping[BrokerAddrInfo, BrokerLiveInfo]) -> dict[BrokerAddrInfo, BrokerLiveInfo]:
    return {key: replace(live, generation=0) for key, live in live_brokers.items()}
