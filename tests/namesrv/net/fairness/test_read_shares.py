"""Read shares: each address has a share of every loop iteration, and frames beyond it wait for a later one."""

import asyncio
import itertools

import pytest

from namesrv.net.dispatcher import Reply
from namesrv.net.fairness.read_shares import ITERATION_COST, LEAST_SHARE, WAITING_COST, ReadShares
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request
from tests.support.fake_clock import settle, until
from tests.support.serving import serving
from tests.support.spelling import ONEWAY, RESPONSE, json_frame

FLOOD = 3_000


def answer_oneway(connection: ServerConnection, frame: bytes) -> bytes | None:
    """Response one-way requests with no bytes, as the fast path answers heartbeats."""
    return b"" if b'"flag":2' in frame else None


async def frames_by_iteration(connections: list[ServerConnection], frame: bytes, count: int) -> list[int]:
    """Let each connection receive `count` frames in one read; return the number of frames handled in each iteration."""
    counts: list[int] = []
    unhandled = count * len(connections)
    for connection in connections:
        connection.data_received(frame * count)
    while unhandled:
        before = unhandled
        unhandled = sum(connection._receiver.held_bytes for connection in connections) // len(frame)
        counts.append(before - unhandled)
        await asyncio.sleep(0)
    return counts


@pytest.mark.parametrize(
    ("flag", "most"),
    [
        pytest.param(ONEWAY, 512, id="one-way request of the fast path"),
        pytest.param(RESPONSE, 64, id="response"),
        pytest.param(0, 64, id="unknown request"),
    ],
)
async def test_one_connection_has_a_share_of_each_iteration(flag: int, most: int) -> None:
    """A flood in a single read is processed over many iterations, also when its frames have no responses."""
    async with serving(fast_path=answer_oneway, max_in_flight=FLOOD) as served:
        peer = await served.connect()
        frame = json_frame(99, 1, flag=flag)
        async with asyncio.TaskGroup() as tasks:
            # While any response is unread, no further request is processed.
            reading = tasks.create_task(peer.reader.read())
            counts = await frames_by_iteration([served.connection_of(peer)], frame, FLOOD)
            reading.cancel()

    assert sum(counts) == FLOOD
    assert max(counts) <= most


async def test_connections_of_one_address_divide_its_share() -> None:
    """Ten flooding connections of one address are processed as fast as one, and each of them ends."""
    async with serving(fast_path=answer_oneway) as served:
        connections = [served.connection_of(await served.connect()) for _ in range(10)]
        counts = await frames_by_iteration(connections, json_frame(99, 1, flag=ONEWAY), 500)

    assert sum(counts) == 5_000
    # all connections are read in the first iteration
    assert max(counts[1:]) <= 512


async def test_bytes_after_garbage_use_the_read_share() -> None:
    """Until its last response is sent, a refused connection drops one read in each iteration."""
    async with serving(fast_path=answer_oneway) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        gate = asyncio.Event()

        async def wait(request: Request) -> Reply:
            await gate.wait()
            return Reply()

        served.server.dispatcher.handlers = {10: wait}
        connection.data_received(json_frame(10, 1) + b"\0\0\0\0")
        assert connection.read_share.left < ITERATION_COST
        await settle()
        connection.data_received(b"x" * 1000)
        transport = connection._transport
        assert transport is not None
        assert not transport.is_reading()
        await until(transport.is_reading)
        gate.set()


async def test_shares_are_divided_among_the_active_addresses() -> None:
    """The total of an iteration is divided among active addresses; each share fits at least one request."""
    shares = ReadShares()
    addresses = [shares.enter(f"192.0.2.{number}") for number in range(100)]
    alone = addresses[0]
    assert alone.spend(0)
    assert alone.left == ITERATION_COST
    await settle()

    for share in addresses:
        share.spend(0)
    await settle()
    for share in addresses:
        share.spend(0)
    assert {share.left for share in addresses} == {LEAST_SHARE}

    for share in addresses:
        shares.leave(share)
    assert repr(shares) == "<ReadShares [0 networks | 0 waiting]>"


async def test_requests_of_closed_connections_are_counted() -> None:
    """Requests that are not yet counted when their connection closes are counted towards the quotas."""
    counted: list[int] = []
    shares = ReadShares(lambda share: counted.append(share.uncounted))

    for _ in range(2):
        share = shares.enter("192.0.2.1")
        share.uncounted = 63
        shares.leave(share)
    shares.leave(shares.enter("192.0.2.1"))

    assert counted == [63, 63]


async def test_waiting_connections_continue_in_order() -> None:
    """A waiting connection continues when its share has something left; a used-up share leaves the rest waiting."""
    shares, continued = ReadShares(), list[str]()
    share = shares.enter("192.0.2.1")

    def read_on(name: str) -> None:
        continued.append(name)
        share.spend(ITERATION_COST)

    for name in ("a", "b", "c"):
        share.wait(lambda name=name: read_on(name))  # type: ignore[misc]
    counts = [len(continued)]
    while len(continued) < 3:
        await asyncio.sleep(0)
        counts.append(len(continued))

    assert continued == ["a", "b", "c"]
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) == 1


async def test_waiting_addresses_continue_in_turn() -> None:
    """However many addresses wait, the cost of an iteration is bounded, and each address continues as often."""
    shares, continued = ReadShares(), list[int]()
    addresses = [shares.enter(f"192.0.2.{number}") for number in range(100)]

    def read_on(number: int) -> None:
        continued.append(number)
        addresses[number].spend(LEAST_SHARE)
        if len(continued) < 300:
            addresses[number].wait(lambda: read_on(number))

    for number, share in enumerate(addresses):
        share.wait(lambda number=number: read_on(number))  # type: ignore[misc]
    counts = [len(continued)]
    while len(continued) < 300:
        await asyncio.sleep(0)
        counts.append(len(continued))

    assert continued[:300] == list(range(100)) * 3
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) == WAITING_COST // LEAST_SHARE
