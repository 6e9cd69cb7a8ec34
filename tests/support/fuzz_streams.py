"""What has to come of a stream of fuzzed frames: which questions are answered, and does the connection end?

Judged with the frame reader and the header decoders of the code under test, which are fuzzed on their own.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from namesrv import fast_lane
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame, FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.support.fuzz_frames import FrameMaker
from tests.support.fuzz_values import Dice
from tests.support.spelling import JSON, NATIVE

PULL_ROUTES = 20001
# frames of one connection, if none of them ends it before
MAX_FRAMES = 40

# a frame of length 0, which ends every stream
GARBAGE = bytes(8)
_FAST_LANE = {JSON: fast_lane._decode_json, NATIVE: fast_lane._decode_native}

# how its answer is spelt, and its opaque; no opaque when the server draws one of its own
Due = tuple[int, int | None]


@dataclass(slots=True)
class Stream:
    """What is sent over one connection, and what is due for it."""

    pieces: list[bytes] = field(default_factory=list)
    # frames that the server looks at, the one that ends it included
    frames: int = 0
    # must be answered, each once
    due: Counter[Due] = field(default_factory=Counter)
    # may be answered: questions that wait until something changes, and all of their kind when the peer breaks the
    # protocol behind them
    may_wait: Counter[Due] = field(default_factory=Counter)
    pulls: Counter[Due] = field(default_factory=Counter)
    # the server closes the connection
    is_broken: bool = False
    # ends within a frame: the server waits for the rest
    is_cut_off: bool = False

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)


def streams(numbers: Iterable[int], maker: FrameMaker) -> Iterator[Stream]:
    """The frames of these numbers in order, a new connection after each that ends one."""
    stream, reader = Stream(), FrameReader()
    for number in numbers:
        frame = maker.make(number)
        stream.pieces.append(frame)
        _judge(stream, reader, frame)
        if stream.is_broken or stream.is_cut_off or stream.frames >= MAX_FRAMES:
            yield _settled(stream)
            stream, reader = Stream(), FrameReader()
    if stream.pieces:
        yield _settled(stream)


def chopped(stream: Stream, dice: Dice) -> Sequence[bytes]:
    """Its bytes in the pieces in which they are sent: mostly at once, some in a few, rarely one by one."""
    data = stream.data
    way = dice.upto(9)
    if way < 6:
        return [data]
    if way == 9 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted({0, len(data), *(dice.upto(len(data)) for _ in range(1 + dice.upto(4)))})
    return [data[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]


def _judge(stream: Stream, reader: FrameReader, data: bytes) -> None:
    for frame in reader.receive_data(data):
        stream.frames += 1
        try:
            command = decode_frame(frame)
        except RemoteProtocolError:
            _end_for_sure(stream, frame)
            return
        if command.is_response or command.is_oneway:
            continue
        due = (NATIVE if command.is_native else JSON, command.opaque)
        if command.code == PULL_ROUTES and command.is_native and b"wait_ms" in command.body:
            stream.may_wait[due] += 1
        elif command.code == PULL_ROUTES:
            stream.pulls[due] += 1
        else:
            stream.due[due] += 1
    if reader.error is not None:
        stream.frames += 1
        stream.is_broken = True
    stream.is_cut_off = reader.is_inside_frame


def _end_for_sure(stream: Stream, frame: Frame) -> None:
    """The fast lane does not look at header fields that it has no use for, and so may answer such a frame."""
    stream.is_broken = True
    for serialize_type, decode in _FAST_LANE.items():
        if serialize_type == frame.serialize_type:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                stream.may_wait[serialize_type, decode(frame.header).opaque] += 1
                stream.pieces.append(GARBAGE)


def _settled(stream: Stream) -> Stream:
    if stream.is_broken:
        stream.may_wait += stream.pulls
    else:
        stream.due += stream.pulls
    return stream
