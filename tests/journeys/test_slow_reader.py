"""A peer that does not read its answers is cut off before it takes the server's memory, and no other is."""

from tests.support.daemon import Daemon, Start
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


def assert_cut_off(daemon: Daemon, slow: Peer, other: Peer) -> None:
    """The slow peer's connection is closed with one line in the log; another peer is served."""
    line = daemon.wait_for("connection_refused")
    assert (slow.address, "slow_reader", "peer does not read") == (line["peer"], line["reason"], line["error"])
    slow.wait_until_closed()
    answer = other.ask(GET, KEY)
    assert {"value": VALUE} == answer.ext_fields
    assert 1 == len(daemon.lines("connection_refused"))


def test_peer_that_leaves_something_unread_for_too_long(start: Start, connect: Connect) -> None:
    """A peer that asks for much and leaves its answers there is closed when its time is over."""
    daemon = start("--whole-frame-timeout-seconds", "1")
    slow, other = connect(daemon, receive_buffer_bytes=4096), connect(daemon)
    assert 0 == other.ask(PUT, {**KEY, "value": VALUE}).code

    flood(slow, 1600)

    assert_cut_off(daemon, slow, other)


def test_peer_that_reads_slowly_gets_everything(start: Start, connect: Connect) -> None:
    """A peer that reads, if late, gets every answer: its questions wait in its own socket meanwhile."""
    daemon = start()
    slow, other = connect(daemon, receive_buffer_bytes=4096), connect(daemon)
    assert 0 == other.ask(PUT, {**KEY, "value": VALUE}).code

    asked = [slow.send(GET, KEY) for _ in range(100)]
    # the server is through with them as far as it gets
    assert 0 == other.ask(GET, KEY).code

    answers = [slow.receive() for _ in asked]
    assert asked == [answer.opaque for answer in answers]
    assert {"value": VALUE} == answers[-1].ext_fields
    assert [] == daemon.lines("connection_refused")
