"""Division of queues among the members of a consumer group, as RocketMQ's strategies do it."""

import pytest

from namesrv_client import MessageQueue
from namesrv_client.queues.allocation import (
    Strategy,
    averagely,
    averagely_by_circle,
    by_config,
    by_machine_room,
    by_machine_room_nearby,
    consistent_hash,
)


def queues(count: int, broker: str = "brokerName", first: int = 0) -> list[MessageQueue]:
    """Queues of one broker with consecutive ids."""
    return [MessageQueue("topic", broker, number) for number in range(first, first + count)]


def clients(count: int) -> list[str]:
    """Client ids as in Go's tests."""
    return [f"192.168.24.{number}@default" for number in range(1, count + 1)]


def room(name: str) -> str:
    """The machine room: the part of a broker or client name before @."""
    return name.partition("@")[0]


# Go's queues for machine rooms: three in the first room, two in the second, one in another
ROOM_QUEUES = [*queues(3, "room1@b"), *queues(2, "room2@b", 3), *queues(1, "room3@b", 5)]
ROOMS = by_machine_room(["room1", "room2"])
ROOM_1 = by_machine_room(["room1"])
NEARBY = by_machine_room_nearby(averagely, lambda queue: room(queue.broker_name), room)
STRATEGIES = [averagely, averagely_by_circle, ROOMS, NEARBY, consistent_hash()]


@pytest.mark.parametrize(
    ("strategy", "all_queues", "members", "expected"),
    [
        # Go's TestAllocateByAveragely: six queues, consecutive ids for each
        (averagely, queues(6), clients(2), [[0, 1, 2], [3, 4, 5]]),
        (averagely, queues(6), clients(4), [[0, 1], [2, 3], [4], [5]]),
        (averagely, queues(6), clients(7), [[0], [1], [2], [3], [4], [5], []]),
        # TestAllocateByAveragelyCircle: assigned in rotation
        (averagely_by_circle, queues(6), clients(4), [[0, 4], [1, 5], [2], [3]]),
        (averagely_by_circle, queues(6), clients(7), [[0], [1], [2], [3], [4], [5], []]),
        # TestAllocateByMachineRoom: the five queues of two rooms are divided, the sixth is not assigned
        (ROOMS, ROOM_QUEUES, clients(2), [[0, 1, 4], [2, 3]]),
        (ROOMS, ROOM_QUEUES, clients(3), [[0, 3], [1, 4], [2]]),
        (ROOMS, ROOM_QUEUES, clients(7), [[0], [1], [2], [3], [4], [], []]),
        # AllocateMessageQueueByMachineRoomTest
        (ROOM_1, [*queues(5, "room1@broker-a"), *queues(5, "room2@broker-b", 5)], clients(2), [[0, 1, 4], [2, 3]]),
        # a name without @, or with two, is in no room
        (ROOM_1, [*queues(1, "room1"), *queues(1, "room1@a@b", 1), *queues(1, "room1@a", 2)], ["c"], [[2]]),
        # TestAllocateByConfig: the configured queues, for every client
        (by_config(queues(3)), queues(6), clients(2), [[0, 1, 2], [0, 1, 2]]),
        # upstream's ConsistentHashRouter with ten virtual nodes gives ten queues to clients 1 0 2 1 1 2 0 0 0 0
        (
            consistent_hash(10),
            queues(10),
            ["CID_PREFIX0", "CID_PREFIX1", "CID_PREFIX2"],
            [[1, 6, 7, 8, 9], [0, 3, 4], [2, 5]],
        ),
        # AllocateMachineRoomNearByTest: every client reads in its own room
        (
            NEARBY,
            [*queues(4, "r1@b"), *queues(4, "r2@b", 4)],
            ["r1@c1", "r1@c2", "r2@c1"],
            [[0, 1], [2, 3], [4, 5, 6, 7]],
        ),
        # a room without queues reads nothing
        (NEARBY, queues(4, "r1@b"), ["r1@c1", "r2@c1"], [[0, 1, 2, 3], []]),
        # a room of queues without clients is shared by all, besides their own
        (
            NEARBY,
            [*queues(2, "r1@b"), *queues(2, "r2@b", 2), *queues(4, "r3@b", 4)],
            ["r1@c1", "r2@c1"],
            [[0, 1, 4, 5], [2, 3, 6, 7]],
        ),
    ],
)
def test_queues_are_divided_as_in_go_and_java(
    strategy: Strategy, all_queues: list[MessageQueue], members: list[str], expected: list[list[int]]
) -> None:
    """The expected value lists the queue ids of each member."""
    found = [strategy(member, all_queues, members) for member in members]

    assert [[queue.queue_id for queue in mine] for mine in found] == expected


@pytest.mark.parametrize(("queue_count", "client_count"), [(20, 10), (10, 20), (1, 1), (64, 7)])
def test_consistent_hash_moves_only_queues_of_a_leaving_client(queue_count: int, client_count: int) -> None:
    """AllocateMessageQueueConsitentHashTest: each queue once; when a client leaves, the others lose no queue."""
    strategy, members, everything = consistent_hash(3), clients(client_count), queues(queue_count)
    before = {member: strategy(member, everything, members) for member in members}
    assert sorted(queue for mine in before.values() for queue in mine) == everything

    _, *rest = members
    after = {member: strategy(member, everything, rest) for member in rest}
    assert all(set(before[member]) <= set(after[member]) for member in rest)
    assert not rest or everything == sorted(queue for mine in after.values() for queue in mine)


def test_nearby_refuses_a_queue_without_a_room() -> None:
    """A resolver that returns no room is a configuration error."""
    with pytest.raises(ValueError, match="no machine room for MessageQueue"):
        by_machine_room_nearby(averagely, lambda _: "", lambda _: "r1")("c", queues(1), ["c"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_invalid_arguments(strategy: Strategy) -> None:
    """An unknown client gets no queue, as in Java and Go; empty arguments are errors."""
    assert strategy("stranger", ROOM_QUEUES, clients(2)) == []
    for client, all_queues, members, message in (
        ("", ROOM_QUEUES, clients(1), "client id is empty"),
        ("c", [], clients(1), "no queues"),
        ("c", ROOM_QUEUES, [], "no client ids"),
    ):
        with pytest.raises(ValueError, match=message):
            strategy(client, all_queues, members)


def test_consistent_hash_needs_a_virtual_node() -> None:
    """Without a virtual node the ring would be empty."""
    with pytest.raises(ValueError, match="virtual_nodes must be at least 1, not 0"):
        consistent_hash(0)
