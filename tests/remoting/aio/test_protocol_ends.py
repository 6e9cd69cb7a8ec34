"""Requests and answers when a connection ends."""

from collections.abc import Callable

import pytest

from namesrv_remoting.aio.dispatch import Reply, Request
from tests.support.gate import Gate
from tests.support.raw_peer import until
from tests.support.serving import ECHO, LARGE, serving
from tests.support.spelling import ONEWAY, json_frame


async def test_requests_of_a_peer_that_hangs_up_are_carried_out() -> None:
    """Whoever sends an unregistration and closes has unregistered."""
    gate = Gate()
    async with serving({10: gate}) as served:
        peer = await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2, flag=ONEWAY))
        await until(lambda: gate.came)
        peer.close()
        await until(lambda: served.heard.closed)

        gate.open()
        await until(lambda: len(gate.done) == 2)
        assert ([1, 2], []) == (gate.done, gate.cancelled)


@pytest.mark.parametrize("ends", ["peer closes", "peer resets", "server closes", "server aborts", "garbage"])
async def test_watches_end_with_their_connection(ends: str) -> None:
    """There is nobody to tell any more; the other connections' watches go on."""
    gate = Gate()
    async with serving({10: gate}, concurrent=frozenset({10})) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send(json_frame(10, 1) + json_frame(10, 2))
        other.send(json_frame(10, 3))
        await until(lambda: len(gate.came) == 3)
        connection = served.connection_of(peer)
        endings: dict[str, Callable[[], None]] = {
            "peer closes": peer.close,
            "peer resets": peer.reset,
            "server closes": connection.close,
            "server aborts": connection.abort,
            "garbage": lambda: peer.send(bytes(8)),
        }
        endings[ends]()
        await until(lambda: len(gate.cancelled) == 2)
        await until(lambda: served.heard.closed)

        await until(lambda: not connection.in_flight)

        assert [1, 2] == sorted(gate.cancelled, key=str)
        assert 1 == served.connection_of(other).in_flight


async def test_close_comes_after_what_was_written() -> None:
    """Closing does not cut an answer off."""
    body = bytes(8 * 1024 * 1024)
    async with serving(limits=LARGE) as served:
        peer = await served.connect(receive_buffer=4096)
        peer.send(json_frame(ECHO, 1, None, body))
        connection = served.connection_of(peer)
        await until(lambda: connection.unsent_bytes)
        connection.close()

        assert body == (await peer.receive()).body
        assert await peer.at_end()


async def test_nothing_is_read_after_closing() -> None:
    """Questions that arrive while the last answers are being sent are not begun."""
    began: list[int | None] = []

    async def note(request: Request) -> Reply:
        began.append(request.command.opaque)
        return Reply()

    async with serving({10: note}) as served:
        peer = await served.connect()
        connection = served.connection_of(peer)
        connection.close()
        connection.data_received(json_frame(10, 1))
        connection.write(json_frame(10, 1))

        assert await peer.at_end()
        assert [] == began
        assert not connection.is_open
