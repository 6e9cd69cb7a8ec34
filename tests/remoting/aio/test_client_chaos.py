"""Random misbehaviour of a server and cancellations: every request ends and leaves nothing behind."""

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemotingError
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import Peer, ScriptedServer, frame


async def misbehave(server: ScriptedServer, dice: random.Random) -> None:
    """Accept connections, and misbehave at random on each."""
    async with asyncio.TaskGroup() as peers:
        while True:
            peers.create_task(misbehave_to(await server.accept(), dice))


async def misbehave_to(peer: Peer, dice: random.Random) -> None:
    """Answer most requests in random order, some twice or never, until the connection ends."""
    late: list[int] = []

    def half_a_frame() -> None:
        peer.send(b"\x00\x00\x01\x00\x00\x00")
        peer.close()

    deeds: dict[Callable[[], object], int] = {
        lambda: peer.answer(late.pop(), code=dice.choice([0, 17])): 12,
        lambda: peer.send(frame({"code": 0, "flag": 1, "opaque": late[0]}) * 2): 2,
        lambda: peer.send(dice.randbytes(100)): 1,
        peer.close: 1,
        half_a_frame: 1,
        peer.reset: 1,
        lambda: peer.send(frame({"code": 905, "opaque": 1})): 1,
        lambda: None: 2,
    }
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            late.append((await peer.receive()).opaque)
            dice.shuffle(late)
            dice.choices(list(deeds), list(deeds.values()))[0]()


@pytest.mark.parametrize("seed", range(10))
async def test_every_request_ends_and_leaves_nothing_behind(seed: int) -> None:
    """Each of two hundred requests ends with a response, a remoting error or a cancellation, and no entry is left."""
    dice, clock = random.Random(seed), FakeClock()
    calls: list[asyncio.Task[RemotingCommand]] = []
    async with ScriptedServer() as server:
        misbehaving = asyncio.create_task(misbehave(server, dice))
        async with RemotingClient(server.address, clock=clock) as client:
            for _ in range(200):
                calls.append(asyncio.create_task(client.invoke(105, timeout_seconds=dice.choice([1.0, 3.0]))))
                if dice.random() < 0.1:
                    dice.choice(calls).cancel()
                if dice.random() < 0.3:
                    await settle()
                if dice.random() < 0.05:
                    await clock.advance(1.0)
            await clock.advance(3.0)

            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert client.pending_count == 0
        misbehaving.cancel()
        await settle()

    odd = [it for it in outcomes if not isinstance(it, RemotingCommand | RemotingError | asyncio.CancelledError)]
    assert odd == []
    assert clock.sleepers == 0
