"""Expected outcome of a stream of fuzzed frames: which requests get a response, and whether the connection ends.

The expectation uses the frame reader and header decoders of the code under test, which are fuzzed on their own.
"""

import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame, FrameReader
from namesrv_remoting.serializers import decode_frame
from tests.fuzz.frames import PLAIN, make
from tests.fuzz.mutations import Dice
from tests.support.serving import LIMITS
from tests.support.spelling import JSON, NATIVE

PULL_ROUTES: Final = 20001
# frames per connection, unless one of them ends it
MAX_FRAMES: Final = 40

# serialize type and opaque of a response; without an opaque the server draws one
Due = tuple[int, int | None]


@dataclass(slots=True)
class Stream:
    """Bytes sent over one connection, and their expected responses."""

    # request code -> largest frame that the server receives for it, if larger than a small frame
    large_frames: Mapping[int, int]
    pieces: list[bytes] = field(default_factory=list)
    # frames read by the server, including one that ends the connection
    frames: int = 0
    # required responses, each exactly once
    due: Counter[Due] = field(default_factory=Counter)
    # possible responses: pending watches, and every response due when the peer breaks the protocol afterwards
    may_wait: Counter[Due] = field(default_factory=Counter)
    pulls: Counter[Due] = field(default_factory=Counter)
    # the server closes the connection
    is_broken: bool = False
    # the stream ends within a frame, so that the server waits for the rest
    is_cut_off: bool = False

    _reader: FrameReader = field(default_factory=FrameReader)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def add(self, data: bytes) -> None:
        """Send more bytes and update the expectation."""
        self.pieces.append(data)
        end = 0
        for frame in self._reader.receive_data(data):
            self.frames += 1
            begin, end = end, end + 4 + struct.unpack_from(">I", data, end)[0]
            if self._is_too_large(data[begin:end]):
                self.is_broken = True
                return
            try:
                command = decode_frame(frame)
            except RemoteProtocolError:
                self.is_broken = True
                return
            if not (command.is_response or command.is_oneway):
                self._due_for(command)
        error = self._reader.error
        if error is not None or self._is_too_large(data[end:]):
            self.frames += 1
            self.is_broken = True
        if error is not None and error.reason == "tls":
            # a plain HTTP response names the protocol of this port
            self.may_wait[JSON, 0] += 1
        self.is_cut_off = self._reader.is_inside_frame

    def _due_for(self, command: RemotingCommand) -> None:
        due = (NATIVE if command.is_native else JSON, command.opaque)
        if command.code != PULL_ROUTES:
            self.due[due] += 1
        elif command.is_native and b"wait_ms" in command.body:
            self.may_wait[due] += 1
        else:
            self.pulls[due] += 1

    def _is_too_large(self, begun: bytes) -> bool:
        """True when the header of an incomplete frame makes the server refuse the rest."""
        if len(begun) < 8:
            return False
        length, word = struct.unpack_from(">II", begun)
        header_end = 8 + (word & 0xFFFFFF)
        if length + 4 <= LIMITS.small_frame_bytes or len(begun) < header_end:
            return False
        try:
            code = decode_frame(Frame(begun[4], begun[8:header_end], b"")).code
        except RemoteProtocolError:
            return True
        return bool(length + 4 > self.large_frames.get(code, 0))

    def settled(self) -> Self:
        """The stream without further additions."""
        if self.is_broken:
            self.may_wait += self.pulls
        else:
            self.due += self.pulls
        return self


def streams(numbers: Iterable[int], large_frames: Mapping[int, int]) -> Iterator[Stream]:
    """The frames of these numbers in order.

    Frames that end a connection get one of their own, after repeated earlier frames, so that the others share long-
    lived connections: brokers live as long as theirs.
    """
    stream, whole = Stream(large_frames), [PLAIN]
    for number in numbers:
        frame = make(number)
        alone = Stream(large_frames)
        alone.add(frame)
        if alone.is_broken or alone.is_cut_off:
            ending = Stream(large_frames)
            for before in whole[len(whole) - number % 4 :]:
                ending.add(before)
            ending.add(frame)
            yield ending.settled()
        else:
            whole = [*whole[-2:], frame]
            stream.add(frame)
            if stream.frames >= MAX_FRAMES:
                yield stream.settled()
                stream = Stream(large_frames)
    if stream.pieces:
        yield stream.settled()


def chopped(stream: Stream, dice: Dice) -> Sequence[bytes]:
    """The stream's bytes in pieces: mostly one, sometimes a few, rarely single bytes."""
    data = stream.data
    way = dice.upto(9)
    if way < 6:
        return [data]
    if way == 9 and len(data) < 400:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted({0, len(data), *(dice.upto(len(data)) for _ in range(1 + dice.upto(4)))})
    return [data[start:end] for start, end in itertools.pairwise(cuts)]
