"""Each member of a consumer group gets the queues that RocketMQ's strategies give it."""

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

ROOM_1, ROOM_2 = "192.168.24.1", "192.168.24.2"


def queues(count: int, broker: str = "brokerName", first: int = 0) -> list[MessageQueue]:
    """Queues of one broker, the ids one after the other."""
    return [MessageQueue("topic", broker, number) for number in range(first, first + count)]


def clients(count: int) -> list[str]:
    """Client ids as in Go's tests."""
    return [f"192.168.24.{number}@default" for number in range(1, count + 1)]


def ids(found: list[MessageQueue]) -> list[int]:
    """The queue ids."""
    return [queue.queue_id for queue in found]


# Go's queues for machine rooms: three in the first room, two in the second, one elsewhere
ROOM_QUEUES = [
    *queues(3, f"{ROOM_1}@defaultName"),
    *queues(2, f"{ROOM_2}@defaultName", 3),
    *queues(1, "192.168.24.3@defaultName", 5),
]
STRATEGIES: dict[str, Strategy] = {
    "averagely": averagely,
    "averagely_by_circle": averagely_by_circle,
    "by_machine_room": by_machine_room([ROOM_1, ROOM_2]),
    "by_machine_room_nearby": by_machine_room_nearby(averagely, lambda _: "room", lambda _: "room"),
    "consistent_hash": consistent_hash(),
}


# -- Go's vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "members", "expected"),
    [(1, 2, [0, 1, 2]), (2, 3, [2, 3]), (2, 4, [2, 3]), (4, 4, [5]), (7, 7, [])],
)
def test_averagely_as_in_go(member: int, members: int, expected: list[int]) -> None:
    """TestAllocateByAveragely: six queues, a run of neighbours for each."""
    assert expected == ids(averagely(clients(7)[member - 1], queues(6), clients(members)))


@pytest.mark.parametrize(
    ("member", "members", "expected"),
    [(1, 2, [0, 2, 4]), (2, 3, [1, 4]), (2, 4, [1, 5]), (4, 4, [3]), (7, 7, [])],
)
def test_averagely_by_circle_as_in_go(member: int, members: int, expected: list[int]) -> None:
    """TestAllocateByAveragelyCircle: six queues, dealt out in turn."""
    assert expected == ids(averagely_by_circle(clients(7)[member - 1], queues(6), clients(members)))


@pytest.mark.parametrize(
    ("member", "members", "expected"),
    [(1, 2, [0, 1, 4]), (2, 3, [1, 4]), (2, 4, [1]), (4, 4, [3]), (7, 7, [])],
)
def test_by_machine_room_as_in_go(member: int, members: int, expected: list[int]) -> None:
    """TestAllocateByMachineRoom: the five queues of two rooms are shared out, the sixth is nobody's."""
    strategy = by_machine_room([ROOM_1, ROOM_2])

    assert expected == ids(strategy(clients(7)[member - 1], ROOM_QUEUES, clients(members)))


def test_by_config_as_in_go() -> None:
    """TestAllocateByConfig: what was configured, whoever asks."""
    assert queues(6) == by_config(queues(6))(clients(1)[0], queues(6), clients(2))


# -- Java's vectors ---------------------------------------------------------------------------------------------------


def test_averagely_as_in_java() -> None:
    """AllocateMessageQueueAveragelyTest: ten queues and four clients make 3, 3, 2 and 2."""
    found = [averagely(client, queues(10), clients(4)) for client in clients(4)]

    assert [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]] == [ids(mine) for mine in found]


def test_averagely_by_circle_as_in_java() -> None:
    """AllocateMessageQueueAveragelyByCircleTest: ten queues, four clients."""
    found = [averagely_by_circle(client, queues(10), clients(4)) for client in clients(4)]

    assert [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]] == [ids(mine) for mine in found]


def test_by_machine_room_as_in_java() -> None:
    """AllocateMessageQueueByMachineRoomTest: of ten queues five are in room1, and two clients share them."""
    all_queues = [*queues(5, "room1@broker-a"), *queues(5, "room2@broker-b", 5)]
    strategy = by_machine_room(["room1"])

    assert [[0, 1, 4], [2, 3]] == [ids(strategy(client, all_queues, clients(2))) for client in clients(2)]


def test_machine_room_is_what_stands_before_the_only_at_sign() -> None:
    """A name without @, or with two, is in no room."""
    all_queues = [*queues(1, "room1"), *queues(1, "room1@a@b", 1), *queues(1, "room1@a", 2)]

    assert [2] == ids(by_machine_room(["room1"])("c", all_queues, ["c"]))


def test_consistent_hash_as_in_java() -> None:
    """Upstream's ConsistentHashRouter with ten virtual nodes gives these ten queues to clients 1 0 2 1 1 2 0 0 0 0."""
    members = ["CID_PREFIX0", "CID_PREFIX1", "CID_PREFIX2"]
    strategy = consistent_hash(10)

    found = [ids(strategy(member, queues(10), members)) for member in members]

    assert [[1, 6, 7, 8, 9], [0, 3, 4], [2, 5]] == found


@pytest.mark.parametrize(("queue_count", "client_count"), [(20, 10), (10, 20), (1, 1), (64, 7)])
def test_consistent_hash_gives_out_every_queue_once(queue_count: int, client_count: int) -> None:
    """AllocateMessageQueueConsitentHashTest: all queues together, and no queue twice."""
    strategy = consistent_hash(3)

    found = [
        queue
        for member in clients(client_count)
        for queue in strategy(member, queues(queue_count), clients(client_count))
    ]

    assert queues(queue_count) == sorted(found)


def test_consistent_hash_moves_only_the_queues_of_who_comes_or_goes() -> None:
    """Without one of ten clients the others keep what they had, and get more; with it back all is as it was."""
    strategy, members = consistent_hash(), clients(10)
    before = {member: set(strategy(member, queues(20), members)) for member in members}
    gone = members[3]
    after = {member: set(strategy(member, queues(20), [m for m in members if m != gone])) for member in members}

    assert set() == after[gone]
    assert all(before[member] <= after[member] for member in members if member != gone)


# -- rooms nearby -----------------------------------------------------------------------------------------------------


def nearby(client: str, all_queues: list[MessageQueue], members: list[str]) -> list[MessageQueue]:
    """Rooms are written before the @ of brokers and clients."""
    strategy = by_machine_room_nearby(
        averagely, lambda queue: queue.broker_name.partition("@")[0], lambda member: member.partition("@")[0]
    )
    return strategy(client, all_queues, members)


def test_nearby_with_as_many_rooms_of_clients_keeps_queues_in_their_room() -> None:
    """AllocateMachineRoomNearByTest, equal rooms: everybody reads at home."""
    all_queues = [*queues(4, "r1@b"), *queues(4, "r2@b", 4)]
    members = ["r1@c1", "r1@c2", "r2@c1"]

    assert [[0, 1], [2, 3], [4, 5, 6, 7]] == [ids(nearby(member, all_queues, members)) for member in members]


def test_nearby_with_more_rooms_of_clients_leaves_some_without() -> None:
    """AllocateMachineRoomNearByTest, more rooms of clients than of queues: a room without queues reads nothing."""
    members = ["r1@c1", "r2@c1"]

    assert [[0, 1, 2, 3], []] == [ids(nearby(member, queues(4, "r1@b"), members)) for member in members]


def test_nearby_with_fewer_rooms_of_clients_shares_out_the_orphans() -> None:
    """AllocateMachineRoomNearByTest, a room of queues without clients: all clients share it, besides their own."""
    all_queues = [*queues(2, "r1@b"), *queues(2, "r2@b", 2), *queues(4, "r3@b", 4)]
    members = ["r1@c1", "r2@c1"]

    assert [[0, 1, 4, 5], [2, 3, 6, 7]] == [ids(nearby(member, all_queues, members)) for member in members]


def test_nearby_refuses_what_is_in_no_room() -> None:
    """A resolver that names no room is a mistake of whoever configured it."""
    strategy = by_machine_room_nearby(averagely, lambda _: "", lambda _: "r1")

    with pytest.raises(ValueError, match="no machine room for MessageQueue"):
        strategy("c", queues(1), ["c"])


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_client_that_is_not_in_the_group_gets_nothing(name: str) -> None:
    """Java logs and returns an empty list, and so does Go."""
    assert [] == STRATEGIES[name]("stranger", ROOM_QUEUES, clients(2))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    ("client", "all_queues", "members", "message"),
    [
        ("", ROOM_QUEUES, clients(1), "client id is empty"),
        ("c", [], clients(1), "no queues"),
        ("c", ROOM_QUEUES, [], "no client ids"),
    ],
)
def test_empty_arguments_are_refused(
    name: str, client: str, all_queues: list[MessageQueue], members: list[str], message: str
) -> None:
    """As Java's IllegalArgumentException."""
    with pytest.raises(ValueError, match=message):
        STRATEGIES[name](client, all_queues, members)


def test_consistent_hash_needs_a_virtual_node() -> None:
    """None at all would leave an empty ring."""
    with pytest.raises(ValueError, match="virtual_nodes must be at least 1, not 0"):
        consistent_hash(0)
