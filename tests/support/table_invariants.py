"""Slow checks of the invariants of route tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

from namesrv.routeinfo.tables import rows as topic_rows
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.bodies.route import QueueData


def violations(tables: RouteTables) -> list[str]:
    """Violated promises of the comments in RouteTables; always empty."""
    return [*_index_violations(tables), *_table_violations(tables), *_live_violations(tables)]


def _index_violations(tables: RouteTables) -> Iterator[str]:
    rows, live = tables.topic_queue_table, tables.broker_live_table
    every = [queues for row in rows.values() for queues in row.queues]
    for name, expected in {
        "topics.of_broker": {
            name: dict.fromkeys(topics)
            for name, topics in _index(
                (queues.broker_name, topic) for topic, row in rows.items() for queues in row.queues
            ).items()
        },
        "connections.brokers_on": _index((entry.connection_id, key) for key, entry in live.items()),
        "connections.brokers_by_other": _index(
            (connection_id, key) for key, found in tables.connections.others.items() for connection_id in found
        ),
        "topics.names": {topic: topic for topic in tables.topics.names},
        "topics.route_count": len(every),
        "topics.mapped_count": sum(
            len(mapping.curr_id_map or ())
            for by_broker in tables.topics.mappings.values()
            for mapping in by_broker.values()
        ),
        "topics.queue_count": sum(max(queues.read_queue_nums, queues.write_queue_nums) for queues in every),
    }.items():
        if (found := attrgetter(name)(tables)) != expected:
            yield f"{name} is {found!r}, not {expected!r}"


def _index(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, set[Any]]:
    found = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return found


def queues_of(tables: RouteTables, topic: str, broker_name: str) -> QueueData | None:
    """The queues of a topic on one broker."""
    row = topic_rows.queues_of(tables.topic_queue_table.get(topic))
    return next((queues for queues in row if queues.broker_name == broker_name), None)


def _table_violations(tables: RouteTables) -> Iterator[str]:
    groups, live = tables.broker_addr_table, tables.broker_live_table
    if frozenset().union(*tables.cluster_addr_table.values()) != frozenset(groups):
        yield "cluster_addr_table and broker_addr_table name different brokers"
    yield from (f"empty cluster {name}" for name, names in tables.cluster_addr_table.items() if not names)
    yield from (f"empty group {name}" for name, group in groups.items() if not group.broker_addrs)
    for topic, row in tables.topic_queue_table.items():
        names = [queues.broker_name for queues in row.queues]
        if not names or names != sorted(set(names)) or not groups.keys() >= set(names):
            yield f"row of {topic}: {names}"
    for topic, by_broker in tables.topics.mappings.items():
        if not by_broker or not all(queues_of(tables, topic, name) for name in by_broker):
            yield f"mappings of {topic}: {by_broker}"
    in_groups = {(name, number, addr) for name, group in groups.items() for number, addr in group.broker_addrs.items()}
    alive = {(entry.broker_name, entry.broker_id, key.broker_addr) for key, entry in live.items()}
    yield from (f"{one} is in its group or live, and not both" for one in in_groups ^ alive)


def _live_violations(tables: RouteTables) -> Iterator[str]:
    live = tables.broker_live_table
    for key, entry in live.items():
        if entry.broker_name not in tables.cluster_addr_table.get(key.cluster_name, ()):
            yield f"{entry.broker_name} is not in its cluster {key.cluster_name}"
    if not tables.topic_queue_table.keys() <= tables.topics.names.keys():
        yield "topics.names lacks topics"
    yield from (
        f"{key} is incomplete"
        for key in tables.incomplete
        if key not in live or not live[key].is_native or key in tables.digests.of_broker
    )
    yield from (f"filter servers of {key}" for key, found in tables.filter_server_table.items() if key not in live)
    for key, connections in tables.connections.others.items():
        if (
            key not in live
            or live[key].connection_id in connections
            or not 0 < len(connections) <= MAX_OTHER_CONNECTIONS
        ):
            yield f"other connections of {key}: {connections}"
