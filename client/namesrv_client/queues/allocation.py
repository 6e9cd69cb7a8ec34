"""RocketMQ's six strategies that divide a topic's queues among the members of a consumer group.

A strategy takes a client's id, all queues and all client ids; every member passes the same sorted queues and client
ids. A client that is not a member gets no queues; empty arguments raise a ValueError. Only `by_config` ignores all
three arguments.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from namesrv_client.queues.topic_queues import MessageQueue

Queues = Sequence[MessageQueue]
Strategy = Callable[[str, Queues, Sequence[str]], list[MessageQueue]]
T = TypeVar("T")


def _for_members(strategy: Strategy) -> Strategy:
    @wraps(strategy)
    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        for given, problem in ((client_id, "client id is empty"), (queues, "no queues"), (client_ids, "no client ids")):
            if not given:
                raise ValueError(problem)
        return strategy(client_id, queues, client_ids) if client_id in client_ids else []

    return allocate


@_for_members
def averagely(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
    """AVG: each client gets a block of neighbouring queues."""
    index, (each, rest) = client_ids.index(client_id), divmod(len(queues), len(client_ids))
    start = each * index + min(index, rest)
    return list(queues[start : start + each + (index < rest)])


@_for_members
def averagely_by_circle(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: every n-th queue."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_config(configured: Sequence[MessageQueue]) -> Strategy:
    """CONFIG: every client gets the configured queues."""

    def allocate(_client_id: str, _queues: Queues, _client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(configured)

    return allocate


def by_machine_room(rooms: Sequence[str]) -> Strategy:
    """MACHINE_ROOM: the queues of brokers named `room@broker` in one of the rooms, divided evenly."""

    @_for_members
    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        index, clients = client_ids.index(client_id), len(client_ids)
        split = [(queue, queue.broker_name.split("@")) for queue in queues]
        ours = [queue for queue, (room, *broker) in split if len(broker) == 1 and room in rooms]
        each, rest = divmod(len(ours), clients)
        mine = ours[each * index : each * (index + 1)]
        if index < rest:
            mine.append(ours[index + each * clients])
        return mine

    return allocate


def by_machine_room_nearby(
    strategy: Strategy, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Strategy:
    """MACHINE_ROOM_NEARBY: queues stay in their room if it has clients; queues of rooms without clients are for all.

    The strategy raises a ValueError for a queue or client without a room.
    """

    @_for_members
    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        queues_of_room = _grouped(queues, room_of_queue)
        clients_of_room = _grouped(client_ids, room_of_client)
        room = room_of_client(client_id)
        mine: list[MessageQueue] = []
        if queues_of_room.get(room):
            mine += strategy(client_id, queues_of_room[room], clients_of_room[room])
        for other, orphans in queues_of_room.items():
            if other not in clients_of_room:
                mine += strategy(client_id, orphans, client_ids)
        return mine

    return allocate


def _grouped(items: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"no machine room for {item}")
        rooms.setdefault(room, []).append(item)
    return dict(sorted(rooms.items()))


def consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """CONSISTENT_HASH: a ring of virtual nodes, so that a client that joins or leaves moves only its own queues.

    Raises ValueError for less than one virtual node.
    """
    if virtual_nodes < 1:
        raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")

    @_for_members
    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        ring = sorted((_hash(f"{owner}-{number}"), owner) for owner in client_ids for number in range(virtual_nodes))
        points = [point for point, _ in ring]
        mine: list[MessageQueue] = []
        for queue in queues:
            # the text of MessageQueue.toString() in Java
            key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            if ring[bisect_left(points, _hash(key)) % len(ring)][1] == client_id:
                mine.append(queue)
        return mine

    return allocate


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4])
