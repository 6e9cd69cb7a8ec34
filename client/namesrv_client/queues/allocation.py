"""RocketMQ's strategies that divide a topic's queues among the members of a consumer group.

RocketMQ's six strategies (section 3.4 of the client reference). Queues and client ids come sorted, the same at every
member. A client that is not in the group gets nothing; empty arguments are a ValueError.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

from namesrv_client.queues.topic_queues import MessageQueue

Queues = Sequence[MessageQueue]
Strategy = Callable[[str, Queues, Sequence[str]], list[MessageQueue]]
T = TypeVar("T")

VIRTUAL_NODES = 10


def _check(client_id: str, queues: Queues, client_ids: Sequence[str]) -> bool:
    if not client_id:
        raise ValueError("client id is empty")
    if not queues:
        raise ValueError("no queues")
    if not client_ids:
        raise ValueError("no client ids")
    return client_id in client_ids


def averagely(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
    """AVG: a run of neighbouring queues each."""
    if not _check(client_id, queues, client_ids):
        return []
    index, count, clients = client_ids.index(client_id), len(queues), len(client_ids)
    rest = count % clients
    size = 1 if count <= clients else count // clients + (1 if index < rest else 0)
    start = index * size if rest and index < rest else index * size + rest
    return list(queues[start : start + max(0, min(size, count - start))])


def averagely_by_circle(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: every n-th queue."""
    if not _check(client_id, queues, client_ids):
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_config(configured: Sequence[MessageQueue]) -> Strategy:
    """CONFIG: what was configured, whoever asks."""

    def allocate(_client_id: str, _queues: Queues, _client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(configured)

    return allocate


def by_machine_room(rooms: Sequence[str]) -> Strategy:
    """MACHINE_ROOM: the queues of brokers named `room@broker` in one of the rooms, shared out evenly."""

    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if not _check(client_id, queues, client_ids):
            return []
        index, clients = client_ids.index(client_id), len(client_ids)
        ours = [queue for queue in queues if _room_of(queue.broker_name) in rooms]
        each, rest = divmod(len(ours), clients)
        mine = ours[each * index : each * (index + 1)]
        if index < rest:
            mine.append(ours[index + each * clients])
        return mine

    return allocate


def _room_of(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 else None  # noqa: PLR2004 - room and broker


def by_machine_room_nearby(
    strategy: Strategy, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Strategy:
    """MACHINE_ROOM_NEARBY: queues stay in their room as long as it has clients; those of other rooms are for all.

    Raises (when allocating):
        ValueError: a resolver names no room.
    """

    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if not _check(client_id, queues, client_ids):
            return []
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


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """CONSISTENT_HASH: a ring of virtual nodes per client, so that one that comes or goes moves only its own queues.

    Raises:
        ValueError: fewer than one virtual node.
    """
    if virtual_nodes < 1:
        raise ValueError(f"virtual_nodes must be at least 1, not {virtual_nodes}")

    def allocate(client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if not _check(client_id, queues, client_ids):
            return []
        ring = sorted((_hash(f"{owner}-{number}"), owner) for owner in client_ids for number in range(virtual_nodes))
        points = [point for point, _ in ring]
        return [
            queue for queue in queues if ring[bisect_left(points, _hash(_java_text(queue))) % len(ring)][1] == client_id
        ]

    return allocate


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4])
