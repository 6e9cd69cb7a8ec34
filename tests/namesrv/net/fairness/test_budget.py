"""The memory budget: each address has a share of it, and the connections of other addresses go on."""

import asyncio
import contextlib
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.net.dispatcher import Reply
from namesrv.net.fairness.budget import MemoryBudget
from namesrv.net.request import Request
from tests.support.fake_clock import settle, until
from tests.support.serving import ECHO, Gate, serving
from tests.support.spelling import binary_frame, json_frame, native_frame

Spell = Callable[..., bytes]

MEBIBYTE = 1024 * 1024
# request codes: the first may have large frames, and the first three are allowed over a reserved slot
REGISTER, HEARTBEAT, SERVER_INFO, LIST = 11, 12, 13, 14
LARGE = {REGISTER: 16 * MEBIBYTE}
# bytes that the budget charges for a connection
CONNECTION = 8 * 1024
# two connections for any peer, four reserved for brokers
SIX: dict[str, Any] = {
    "max_connections": 6,
    "reserved_connections": 4,
    "before_registration": frozenset({REGISTER, HEARTBEAT, SERVER_INFO}),
}


async def small(request: Request) -> Reply:
    """A handler with a short response."""
    return Reply()


async def register(request: Request) -> Reply:
    """A handler that registers a broker."""
    request.connection.confirm_broker()
    return Reply()


async def large(request: Request) -> Reply:
    """A handler with a response of 1 MiB."""
    return Reply(bytes(MEBIBYTE))


def registration(opaque: int = 7, size: int = 4 * MEBIBYTE) -> bytes:
    """A registration too large to be a small frame."""
    return json_frame(REGISTER, opaque, None, bytes(size))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 200)), max_size=60))
def test_reservations_stay_within_the_budget(wanted: list[tuple[str, int]]) -> None:
    """Of 1,000 bytes the tables hold 200, and one address gets an eighth of the rest; releases give all of it back."""
    budget = MemoryBudget(1000, lambda: 200)
    held = [(address, size) for address, size in wanted if budget.reserve(address, size)]

    assert sum(size for _, size in held) == budget.used_bytes <= 800
    for one in "abcdef":
        assert sum(size for address, size in held if address == one) <= 100
    for address, size in held:
        budget.release(address, size)
    assert repr(budget) == "<MemoryBudget [0 of 800 bytes | 0 networks]>"


def test_large_frames_leave_room_for_connections() -> None:
    """A quarter of a share is kept for connections; with tables of any size, peers have an eighth of the memory."""
    budget = MemoryBudget(8 * MEBIBYTE)

    assert not budget.reserve("a", 800_000)
    assert budget.reserve("a", 780_000)
    assert [budget.reserve("a", 64 * 1024) for _ in range(4)] == [True] * 4
    assert not budget.reserve("a", 64 * 1024)
    assert MemoryBudget(1000, lambda: 5000).peers_bytes() == 125


def test_largest_frame_is_received_beside_large_tables() -> None:
    """The smallest share fits the largest frame, so a server with large tables still receives a large registration."""
    budget = MemoryBudget(512 * MEBIBYTE, lambda: 600 * MEBIBYTE, least_share_bytes=32 * MEBIBYTE)

    assert [budget.reserve(address, 16 * MEBIBYTE) for address in "aaabc"] == [True, True, False, True, False]


@pytest.mark.parametrize("spell", [json_frame, binary_frame, native_frame])
async def test_large_frame_is_refused_by_its_header(spell: Spell) -> None:
    """A frame above the size of small frames is refused before its body arrives; one of that size is received."""
    async with serving() as served:
        peer, other = await served.connect(), await served.connect()
        frame = spell(LIST, 7, None, bytes(MEBIBYTE))
        peer.send(frame[:300])
        assert await peer.at_end()
        message = f"frame of {len(frame)} bytes for request 14, limit 65536"
        assert served.observer.refused == [(1, "frame_too_large", message)]

        fits = json_frame(ECHO, 7, None, bytes(64 * 1024 - len(json_frame(ECHO, 7))))
        assert (await other.ask(fits)).opaque == 7


@pytest.mark.parametrize("spell", [json_frame, binary_frame, native_frame])
async def test_large_frame_is_received_without_copies(spell: Spell) -> None:
    """A frame of 12 MiB is received without joining or copying its parts, which would block the loop for 10 ms."""
    sizes: list[int] = []

    async def measure(request: Request) -> Reply:
        sizes.append(len(request.command.body))
        assert request.command.body[-1:] == b"y"
        return Reply()

    frame = spell(REGISTER, 7, None, bytes(12 * MEBIBYTE - 1) + b"y")
    async with serving({REGISTER: measure}, large_frames=LARGE) as served:
        peer = await served.connect()
        tracemalloc.start()
        try:
            for at in range(0, len(frame), 65536):
                peer.send(frame[at : at + 65536])
                await peer.writer.drain()
            assert (await peer.receive()).opaque == 7
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert sizes == [12 * MEBIBYTE]
    assert most < 2 * MEBIBYTE


async def test_large_frame_is_read_in_bounded_chunks() -> None:
    """One loop iteration reads at most 256 KiB of a frame although more has arrived, so other peers are served."""
    frame = memoryview(registration(size=8 * MEBIBYTE))
    async with serving({REGISTER: small}, large_frames=LARGE) as served:
        with socket.create_connection(served.addresses[0]) as peer:
            peer.setblocking(False)  # noqa: FBT003 - positional only
            sent = read = most = 0
            while read < len(frame):
                # fill the socket while the loop is blocked
                with contextlib.suppress(BlockingIOError):
                    while sent < len(frame):
                        sent += peer.send(frame[sent:])
                await asyncio.sleep(0)
                most, read = max(most, served.server.bytes_received - read), served.server.bytes_received
    # the size of one read of a transport
    assert most <= 256 * 1024


@pytest.mark.parametrize("begins_early", [False, True])
@pytest.mark.parametrize("is_received", [True, False])
async def test_large_frame_waits_for_memory(is_received: bool, begins_early: bool) -> None:
    """Of 48 MiB one address gets 4.5: a second frame waits until the first is answered, or is refused after 30 s.

    The time is that of later frames, though the frame is the first one of its connection, and it begins when the
    header is complete. The body of the refused frame is dropped, and its connection stays open.
    """
    gate, budget = Gate(), MemoryBudget(48 * MEBIBYTE)
    async with serving({REGISTER: gate}, large_frames=LARGE, budget=budget) as served:
        first, second = await served.connect(), await served.connect()
        first.send(registration(1))
        await until(lambda: gate.came)
        begun = 20 if begins_early else 0
        await second.send_slowly(registration(2)[:begun])
        await served.clock.advance(9 if begins_early else 0)
        second.send(registration(2)[begun:])
        await settle()
        await served.clock.advance(29 if is_received else 32)
        assert gate.came == [1]
        # a small request needs no wait
        assert (await (await served.connect()).ask(json_frame(ECHO, 7))).opaque == 7

        gate.open()
        assert (await first.receive()).opaque == 1
        await served.clock.advance(1)
        if is_received:
            assert (await second.receive()).opaque == 2
            assert served.observer.refused == []
        else:
            message = f"no memory for a frame of {len(registration(2))} bytes"
            assert ((busy := await second.receive()).opaque, *busy.outcome) == (2, 2, f"{message}; try again later")
            assert served.observer.refused == [(2, "memory", message)]
            assert (await second.ask(registration(3))).code == 0
    assert budget.used_bytes == 0


async def test_closed_connection_releases_its_memory() -> None:
    """The memory of a partly received frame is released with its connection."""
    budget = MemoryBudget(128 * MEBIBYTE)
    async with serving({REGISTER: small}, large_frames=LARGE, budget=budget) as served:
        for frame in (registration()[:MEBIBYTE], registration()[:100], json_frame(ECHO, 7, None, bytes(999))[:500]):
            peer = await served.connect()
            peer.send(frame)
            await until(lambda: budget.used_bytes > CONNECTION)
            peer.reset()
            await until(lambda: not served.server.connections)
            assert budget.used_bytes == 0
            # addresses without memory are removed: an IPv6 host has more of them than fit into memory
            assert " 0 networks]" in repr(budget)


async def test_cancelled_watch_releases_its_memory() -> None:
    """A watch is cancelled before it starts when garbage follows it, and its memory is released."""
    budget = MemoryBudget(128 * MEBIBYTE)
    async with serving({LIST: Gate()}, budget=budget, concurrent=frozenset({LIST})) as served:
        peer = await served.connect()
        peer.send(json_frame(LIST, 7, None, bytes(10_000)) + b"\xff" * 8)
        assert await peer.at_end()
        await until(lambda: not served.server.connections)
        assert budget.used_bytes == 0


def test_waiting_bytes_have_a_part_of_the_budget() -> None:
    """Other charges leave an eighth of the budget to waiting bytes, which count like any other charge beyond it."""
    budget = MemoryBudget(8 * MEBIBYTE)
    budget.charge("a", 8 * MEBIBYTE)
    budget.charge_waiting("b", MEBIBYTE)
    assert budget.has_room_for_waiting("a")
    budget.charge_waiting("b", 1)
    assert not budget.has_room_for_waiting("a")
    budget.release("a", 7 * MEBIBYTE)

    # "b" holds more than its own share
    assert [budget.has_room_for_waiting(network) for network in "ab"] == [True, False]


@pytest.mark.parametrize(
    "flood",
    [
        json_frame(LIST, 7, None, bytes(60 * 1024)) * 3,
        json_frame(LIST, 7, None, bytes(3000)) * 70,
        registration(7, 100 * 1024) + bytes([0, 0, 1]) * 60 * 1024,
    ],
    ids=["queued", "undecoded", "behind a large frame that waits for memory"],
)
async def test_input_without_memory_closes_the_connection(flood: bytes) -> None:
    """A peer whose requests wait is cut off once they exceed its share; other peers are served."""
    gate, budget = Gate(), MemoryBudget(MEBIBYTE)
    async with serving({LIST: gate, REGISTER: small}, budget=budget, large_frames=LARGE) as served:
        flooding = await served.connect()
        # the share of an address is 128 KiB
        served.connection_of(flooding).data_received(flood)
        assert await flooding.at_end()
        assert served.observer.refused == [(1, "memory", "no memory for received bytes")]
        assert (await (await served.connect()).ask(json_frame(ECHO, 8, None, bytes(40_000)))).opaque == 8
        gate.open()
        await until(lambda: budget.used_bytes == CONNECTION)


async def test_large_frame_waits_without_memory_for_its_beginning() -> None:
    """The received beginning is dropped at once; the server reads the rest, and declines the frame, after the wait."""
    budget = MemoryBudget(MEBIBYTE)
    async with serving({REGISTER: small}, budget=budget, large_frames=LARGE) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        whole = registration(7, 200 * 1024)
        # the share of an address is 128 KiB
        connection.data_received(whole[: 150 * 1024])
        assert budget.used_bytes < CONNECTION + 100
        peer.send(whole[150 * 1024 :] + json_frame(ECHO, 8))
        await settle()
        assert (connection.is_open, served.server.dispatcher.answered) == (True, {})
        # memory that becomes free meanwhile is of no use to this frame
        budget.total_bytes *= 16
        await served.clock.advance(32)
        response = await peer.receive()

        assert (response.opaque, response.code) == (7, 2)
        assert str(response.remark).startswith("no memory for a frame of 20")
        assert (await peer.receive()).opaque == 8
        assert served.observer.reasons == ["memory"]


async def test_forgotten_and_handled_bytes_are_freed() -> None:
    """What the budget does not count takes no memory: a frame's beginning that was dropped, and frames of a read."""
    budget = MemoryBudget(MEBIBYTE)
    async with serving({REGISTER: small}, budget=budget, large_frames=LARGE) as served:
        waiting, idle = [served.connection_of(await served.connect()) for _ in range(2)]
        tracemalloc.start()
        try:
            # Cut inside the loop: a reference to the whole frame would count as well.
            waiting.data_received(registration(7, 300 * 1024)[: 250 * 1024])
            idle.data_received(json_frame(ECHO, 7, None, bytes(3000)) * 30)
            await until(lambda: idle.peer.requests == 30 and not idle.in_flight)
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
    # The peers are in this process, too: responses that they have received wait in their streams.
    of_server = snapshot.filter_traces([tracemalloc.Filter(inclusive=False, filename_pattern=asyncio.streams.__file__)])
    assert sum(trace.size for trace in of_server.traces) < 48 * 1024


@pytest.mark.parametrize("is_accepted", [True, False])
async def test_bytes_after_a_large_body_count(is_accepted: bool) -> None:
    """Requests in the read that ends a large body have no reserved memory, whether the body was received or dropped."""
    budget = MemoryBudget(8 * MEBIBYTE)
    async with serving({REGISTER: small}, budget=budget, large_frames=LARGE) as served:
        connection = served.connection_of(await served.connect())
        whole = registration(7, (500 if is_accepted else 3000) * 1024)
        connection.data_received(whole[: 100 * 1024])
        if not is_accepted:
            await served.clock.advance(32)
        connection.data_received(whole[100 * 1024 : -1])
        before = budget.used_bytes
        connection.read_share.spend(10 * MEBIBYTE)
        more = json_frame(ECHO, 8) * 1000
        connection.data_received(whole[-1:] + more)
        assert budget.used_bytes == before + len(more)


async def test_reserved_frames_and_responses_do_not_wait() -> None:
    """Large frames and responses have memory of their own, so that small requests are still received beside them."""
    gate, budget = Gate(), MemoryBudget(8 * MEBIBYTE, least_share_bytes=6 * MEBIBYTE)
    async with serving({REGISTER: gate, LIST: large}, budget=budget, large_frames=LARGE) as served:
        never = await served.connect(receive_buffer=4096)
        never.send(json_frame(LIST, 1) * 9)
        await until(lambda: served.connection_of(never).is_write_paused)
        beginning, whole = await served.connect(), await served.connect()
        beginning.send(registration(2, MEBIBYTE)[: MEBIBYTE // 2])
        whole.send(registration(3, MEBIBYTE))
        await until(lambda: gate.came and budget.used_bytes > 3 * MEBIBYTE)
        # others have used up the budget
        budget.charge("other", 8 * MEBIBYTE)
        peer = await served.connect()

        assert (await peer.ask(json_frame(ECHO, 4, None, bytes(40_000)))).opaque == 4
        assert served.observer.refused == []
        gate.open()


async def test_response_without_memory_is_refused() -> None:
    """A response beyond the budget becomes code 2 with a remark; the connection goes on."""
    budget = MemoryBudget(3 * MEBIBYTE)
    async with serving({LIST: large}, budget=budget) as served:
        peer = await served.connect()
        response = await peer.ask(json_frame(LIST, 7))

        assert (response.code, response.opaque, response.body) == (2, 7, b"")
        assert str(response.remark).startswith("no memory for a response of 1048")
        assert served.server.dispatcher.answered == {(LIST, 2): 1}
        assert (await peer.ask(json_frame(ECHO, 8))).opaque == 8
        assert budget.used_bytes == CONNECTION


async def test_unread_responses_are_charged() -> None:
    """Responses count towards the budget until the peer has read them or the connection is closed."""
    budget = MemoryBudget(128 * MEBIBYTE)
    async with serving({LIST: large}, budget=budget) as served:
        reads, never = [await served.connect(receive_buffer=4096) for _ in range(2)]
        for peer in (reads, never):
            peer.send(json_frame(LIST, 1) * 20)
            await until(lambda peer=peer: served.connection_of(peer).is_write_paused)  # type: ignore[misc]
        await settle()
        unsent = sum(one.unsent_bytes for one in served.server.connections.values())
        # the transport keeps a response whole until its last byte is sent
        assert unsent < 2 * MEBIBYTE < budget.used_bytes < 2 * (CONNECTION + MEBIBYTE + 1024)

        assert [(await reads.receive()).opaque for _ in range(20)] == [1] * 20
        never.reset()
        await until(lambda: len(served.server.connections) == 1)
        await until(lambda: budget.used_bytes == CONNECTION)


async def medium(request: Request) -> Reply:
    """A handler with a response below 64 KiB."""
    return Reply(bytes(60_000))


@pytest.mark.parametrize(
    "how",
    [{"handlers": {LIST: medium}}, {"fast_path": lambda *_: bytes(40_000)}],
    ids=["one by one", "together"],
)
async def test_unread_responses_without_memory_close_the_connection(how: dict[str, Any]) -> None:
    """Responses below 64 KiB are not reserved: a peer that leaves them unread is cut off once its share is used up."""
    async with serving(budget=MemoryBudget(MEBIBYTE), **how) as served:
        # the share of an address is 128 KiB
        for peer in [await served.connect(receive_buffer=4096) for _ in range(4)]:
            connection = served.connection_of(peer)
            assert connection.socket is not None
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            connection.data_received(json_frame(LIST, 1) * 5)
            await until(lambda one=connection: one.is_write_paused or not one.is_open)  # type: ignore[misc]
            await settle()
        await until(lambda: len(served.server.connections) <= 2)
        assert set(served.observer.reasons) == {"slow_reader"}


async def test_connection_without_memory_is_refused() -> None:
    """A connection beyond the budget is closed; earlier connections are still served."""
    async with serving(budget=MemoryBudget(8 * CONNECTION)) as served:
        peer = await served.connect()
        assert await (await served.connect()).at_end()

        assert served.observer.refused == [(2, "memory", "no memory for another connection")]
        assert (await peer.ask(json_frame(ECHO, 7))).opaque == 7


@pytest.mark.parametrize("spell", [json_frame, binary_frame, native_frame])
async def test_reserved_slots_are_for_brokers(spell: Spell) -> None:
    """A client gets an unreserved slot only; a peer in a reserved one registers a broker or is closed."""
    async with serving({REGISTER: register, HEARTBEAT: small, SERVER_INFO: small}, **SIX) as served:
        for _ in range(2):
            assert (await (await served.connect()).ask(spell(ECHO, 7))).opaque == 7
        broker, agent, client, silent = [await served.connect() for _ in range(4)]
        await broker.send_slowly(spell(REGISTER, 8))
        assert [(await broker.receive()).opaque, (await broker.ask(json_frame(ECHO, 9))).opaque] == [8, 9]
        agent.send(spell(SERVER_INFO, 1) + spell(REGISTER, 2) + spell(ECHO, 3))
        assert [(await agent.receive()).opaque for _ in range(3)] == [1, 2, 3]

        client.send(spell(SERVER_INFO, 1))
        assert (await client.receive()).opaque == 1
        client.send(spell(ECHO, 2))
        assert await client.at_end()
        assert served.observer.refused == [(5, "connections", "too many connections without a broker, limit 2")]
        await served.clock.advance(11)
        assert await silent.at_end()
        assert list(served.server.connections) == [1, 2, 3, 4]


@pytest.mark.parametrize("sends_heartbeats", [False, True])
async def test_connections_without_a_registration_give_way_to_brokers(sends_heartbeats: bool) -> None:
    """The oldest peer in a reserved slot that has not registered gives way, silent or with heartbeats; brokers stay."""
    async with serving({REGISTER: register, HEARTBEAT: small}, **SIX) as served:
        clients = [await served.connect() for _ in range(2)]
        broker = await served.connect()
        assert (await broker.ask(json_frame(REGISTER, 8))).opaque == 8
        silent = [await served.connect() for _ in range(3)]
        for peer in silent if sends_heartbeats else ():
            assert (await peer.ask(json_frame(HEARTBEAT, 5))).opaque == 5
        for number in range(3):
            late = await served.connect()
            assert await silent[number].at_end()
            assert (await late.ask(json_frame(REGISTER, 9))).opaque == 9

        refused = await served.connect()
        assert await refused.at_end()
        assert served.observer.refused[-1][2] == "too many connections, limit 6"
        assert [message for *_, message in served.observer.refused[:-1]] == ["connection slot needed for a broker"] * 3
        for peer in (*clients, broker):
            assert (await peer.ask(json_frame(ECHO, 7))).opaque == 7


@pytest.mark.parametrize("over", [0, CONNECTION])
async def test_connection_gives_way_only_to_an_admitted_one(over: int) -> None:
    """A new connection takes the memory of the oldest without a broker; if that is too little, the oldest stays."""
    budget = MemoryBudget(8 * 6 * CONNECTION)
    async with serving({REGISTER: register, SERVER_INFO: small}, budget=budget, **SIX) as served:
        clients = [await served.connect() for _ in range(6)]
        budget.charge("127.0.0.1", over)
        late = await served.connect()

        if over:
            assert await late.at_end()
            assert served.observer.refused == [(7, "memory", "no memory for another connection")]
            assert (await clients[2].ask(json_frame(SERVER_INFO, 7))).opaque == 7
            budget.release("127.0.0.1", over)
            late = await served.connect()
        assert served.observer.refused[-1] == (3, "connections", "connection slot needed for a broker")
        assert await clients[2].at_end()
        assert (await late.ask(json_frame(REGISTER, 8))).opaque == 8
        assert budget.used_bytes == 6 * CONNECTION
    assert budget.used_bytes == 0
