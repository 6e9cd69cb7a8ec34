"""The receiver turns bytes into the same events for any cuts of the stream, and charges every read and every event."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.net.fairness.costs import FRAME_COST, READ_COST, copy_cost
from namesrv.net.receiver import HeaderReceived, Receiver, State
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from tests.support.serving import LIMITS
from tests.support.spelling import JSON, NATIVE, cut

SMALL = 64
LIMITS_HERE = replace(LIMITS, small_frame_bytes=SMALL, max_frame_bytes=1024, max_header_bytes=32, proxy_protocol=True)
# a large frame is accepted or dropped by the first byte of its header; any other byte ends the receiver
ACCEPTED, DROPPED = b"+", b"-"
SMALL_FRAME = cut(JSON, b"+{}", b"body")
LARGE_FRAME = cut(JSON, b"+{}", b"x" * 100)
PROXY_SHAPE = "PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT, or PROXY UNKNOWN"
PROXIED = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"

# an event in a form that can be compared
Seen = tuple[str, object]


class CountedShare:
    """A share from which costs are only subtracted."""

    def __init__(self) -> None:
        self.left = 0

    def spend(self, cost: int) -> bool:
        self.left -= cost
        return True


def receive(pieces: Iterable[bytes], *, must_register: bool = False) -> tuple[list[Seen], Receiver]:
    """The events of these reads with every decision taken at once, and the receiver after them; checks all costs."""
    share = CountedShare()
    receiver, seen, cost = Receiver(LIMITS_HERE, share), list[Seen](), 0
    if must_register:
        receiver.require_registration()
    for piece in pieces:
        cost += READ_COST + copy_cost(len(piece)) + (0 if receiver.is_idle else FRAME_COST)
        receiver.receive_data(piece)
        while (event := receiver.next_event()) is not None:
            cost += FRAME_COST
            seen.append(shown(event))
            if isinstance(event, RemoteProtocolError):
                receiver.end()
            elif isinstance(event, HeaderReceived):
                decide(receiver, event)
    assert -share.left == cost
    return seen, receiver


def decide(receiver: Receiver, event: HeaderReceived) -> None:
    """Accept, drop or end by the first byte of the header; the body of a small frame cannot be dropped."""
    begins = event.header.header[:1]
    if begins == ACCEPTED:
        receiver.accept()
    elif begins == DROPPED and event.size > SMALL:
        # A frame that waits longer than there is memory for its beginning is dropped in two steps.
        if event.size % 2:
            receiver.drop_beginning()
        receiver.drop_body()
    else:
        receiver.end()


def shown(event: object) -> Seen:
    """An event in a form that can be compared."""
    if isinstance(event, Frame):
        return "large", event._replace(body=bytes(event.body))
    if isinstance(event, RemoteProtocolError):
        return "error", str(event)
    return "event", event


@pytest.mark.parametrize(
    ("stream", "seen"),
    [
        (SMALL_FRAME * 2, [("event", SMALL_FRAME), ("event", SMALL_FRAME)]),
        (
            LARGE_FRAME + SMALL_FRAME,
            [
                ("event", HeaderReceived(Frame(JSON, b"+{}", b""), 111)),
                ("large", Frame(JSON, b"+{}", b"x" * 100)),
                ("event", SMALL_FRAME),
            ],
        ),
        (
            cut(NATIVE, b"-{}", b"x" * 100) + SMALL_FRAME,
            [("event", HeaderReceived(Frame(NATIVE, b"-{}", b""), 111)), ("event", SMALL_FRAME)],
        ),
        (PROXIED + SMALL_FRAME, [("event", (len(PROXIED), ("192.0.2.1", 1))), ("event", SMALL_FRAME)]),
        (SMALL_FRAME + bytes(8) + SMALL_FRAME, [("event", SMALL_FRAME), ("error", "frame length 0, minimum 4")]),
        (
            b"\0\0\x04\0\0\0\0\0" + SMALL_FRAME,
            [("error", "frame of 1028 bytes, limit 1024")],
        ),
        (
            b"PROXY nonsense\r\n",
            [
                (
                    "error",
                    f"PROXY header: 'PROXY nonsense' is not {PROXY_SHAPE}",
                )
            ],
        ),
        (SMALL_FRAME + LARGE_FRAME[:10], [("event", SMALL_FRAME)]),
    ],
    ids=["small", "large", "dropped", "proxied", "garbage", "too large", "malformed proxy header", "incomplete"],
)
def test_events_of_a_stream(stream: bytes, seen: list[Seen]) -> None:
    """A small frame is one event; a large one has an event for its header first."""
    assert receive([stream])[0] == seen


def test_every_header_comes_first() -> None:
    """While every header is checked, a small frame has an event for its header, too."""
    header = ("event", HeaderReceived(Frame(JSON, b"+{}", b""), len(SMALL_FRAME)))
    seen, receiver = receive([SMALL_FRAME], must_register=True)
    assert seen == [header, ("event", SMALL_FRAME)]

    receiver.confirm_broker()
    receiver.receive_data(SMALL_FRAME)
    assert receiver.next_event() == SMALL_FRAME


def test_receiver_waits_for_the_decision_on_a_header() -> None:
    """A frame and those after it wait for the decision; an accepted header shows how many bytes its frame needs."""
    receiver = Receiver(replace(LIMITS_HERE, proxy_protocol=False), CountedShare())
    assert (receiver.state, receiver.is_idle, receiver.is_inside_frame) == (State.FRAMES, True, False)
    receiver.receive_data(LARGE_FRAME[:20])
    header = receiver.next_event()
    receiver.receive_data(LARGE_FRAME[20:30])
    assert (
        receiver.state,
        receiver.next_event(),
        receiver.held_bytes,
        receiver.is_inside_frame,
    ) == (State.HEADER, None, 30, True)
    assert receiver.header == header

    receiver.accept()
    assert (receiver.state, receiver.held_bytes, receiver.is_inside_frame) == (State.BODY, 0, True)
    receiver.receive_data(LARGE_FRAME[30:])
    assert receiver.next_event() == Frame(JSON, b"+{}", b"x" * 100)
    assert (receiver.next_event(), receiver.state, receiver.held_bytes, receiver.is_idle) == (
        None,
        State.FRAMES,
        0,
        True,
    )


def test_receiver_forgets_the_beginning_of_a_frame_that_waits() -> None:
    """Only the header is held from then on, and bytes after the frame; the frame still waits until it is dropped."""
    receiver = Receiver(replace(LIMITS_HERE, proxy_protocol=False), CountedShare())
    receiver.receive_data(LARGE_FRAME[:20])
    assert receiver.next_event() is not None
    assert receiver.keeps_beginning
    receiver.drop_beginning()
    receiver.receive_data(LARGE_FRAME[20:] + SMALL_FRAME[:10])

    assert (receiver.state, receiver.keeps_beginning, receiver.next_event()) == (State.HEADER, False, None)
    assert (receiver.held_bytes, receiver.is_inside_frame) == (len(b"+{}") + 10, True)
    receiver.drop_body()
    assert receiver.next_event() is None
    receiver.receive_data(SMALL_FRAME[10:])
    assert receiver.next_event() == SMALL_FRAME


def test_ended_receiver_holds_nothing() -> None:
    """An ended receiver drops its bytes and those that follow."""
    _, receiver = receive([LARGE_FRAME[:50]])
    receiver.end()
    receiver.receive_data(SMALL_FRAME)

    assert (receiver.next_event(), receiver.held_bytes, receiver.is_idle, receiver.is_inside_frame) == (
        None,
        0,
        False,
        False,
    )
    assert repr(receiver) == "<Receiver [ENDED | 0 bytes]>"


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, Sequence[bytes]]:
    """A stream of frames with some garbage, and the pieces into which it is cut."""
    parts = [draw(st.sampled_from([b"", PROXIED, PROXIED[:9], b"\r\n\r\n"]))]
    for _ in range(draw(st.integers(0, 6))):
        header = draw(st.sampled_from([b"+{}", b"-{}", b"?", b"", b"+" * 40]))
        frame = cut(draw(st.sampled_from([JSON, NATIVE, 2])), header, bytes(draw(st.integers(0, 200))))
        parts.append(frame[: draw(st.sampled_from([len(frame)] * 9 + [5]))])
    parts.append(draw(st.binary(max_size=20)))
    stream = b"".join(parts)
    # between the parts, so that the receiver is idle before some reads, and anywhere
    ends = list(accumulate(map(len, parts)))
    cuts = draw(st.lists(st.sampled_from(ends) | st.integers(0, len(stream)), max_size=12))
    return stream, [stream[begin:end] for begin, end in pairwise(sorted({0, len(stream), *cuts}))]


@given(cut_up=streams(), must_register=st.booleans())
def test_events_are_the_same_for_any_cuts(cut_up: tuple[bytes, Sequence[bytes]], *, must_register: bool) -> None:
    """Any pieces, single bytes included, give the events of the whole stream and the same number of held bytes."""
    stream, pieces = cut_up
    whole, receiver = receive([stream], must_register=must_register)
    for cut_in in (pieces, [stream[at : at + 1] for at in range(len(stream))]):
        seen, other = receive(cut_in, must_register=must_register)
        assert whole == seen
        assert (receiver.state, receiver.held_bytes) == (other.state, other.held_bytes)
    assert receiver.held_bytes <= LIMITS_HERE.max_frame_bytes
