"""A peer that does not read its answers is cut off before it takes the server's memory, and no other is."""

from tests.support.daemon import Start
from tests.support.peer import Connect, Peer

PUT, GET = 100, 101
KEY = {"namespace": "NS", "key": "large"}
# one answer; about the largest value that a header may carry
VALUE = "x" * 16_000


def flood(peer: Peer, count: int) -> None:
    """Ask for many large answers, and read none; a server that has enough of it closes the connection."""
    try:
        for _ in range(count):
            peer.send(GET, KEY)
    except ConnectionError:
        pass


def test_peer_that_leaves_something_unread_for_too_long(start: Start, connect: Connect) -> None:
    """A peer that asks for much and leaves its answers there is closed when its time is over."""
    daemon = start("--whole-frame-timeout-seconds", "1")
    slow, other = connect(daemon, receive_buffer_bytes=4096), connect(daemon)
    assert 0 == other.ask(PUT, {**KEY, "value": VALUE}).code

    flood(slow, 1600)

    line = daemon.wait_for("connection_refused")
    assert (slow.address, "slow_reader", "peer does not read") == (line["peer"], line["reason"], line["error"])
    slow.wait_until_closed()
    assert {"value": VALUE} == other.ask(GET, KEY).ext_fields
    assert 1 == len(daemon.lines("connection_refused"))
