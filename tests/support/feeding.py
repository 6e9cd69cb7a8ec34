"""Feeds a stream in every way that the network could chop it, and expects one result."""

from typing import NamedTuple

from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, FrameReader

# What may come behind: a whole frame (JSON header `{}`, body `t`), and one that has only begun.
TAIL = b"\x00\x00\x00\x07\x00\x00\x00\x02{}t"
TAIL_FRAME = Frame(0, b"{}", b"t")
BEGUN = TAIL[:9]


class Fed(NamedTuple):
    """What came out of a stream: its frames, and why it ended, if it did."""

    frames: list[Frame]
    error: str | None


def feed(stream: bytes, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> Fed:
    """What comes out of whole frames or of a broken stream: the same at once, byte by byte, and with a tail.

    Behind whole frames a tail comes out as itself; behind a broken one nothing does.
    """

    def reader() -> FrameReader:
        return FrameReader(max_frame_bytes, max_header_bytes)

    at_once = _fed(reader(), stream)
    assert at_once == _fed(reader(), *(stream[at : at + 1] for at in range(len(stream))))
    tail = [] if at_once.error else [TAIL_FRAME]
    behind = Fed(at_once.frames + tail, at_once.error)
    assert behind == _fed(reader(), stream + TAIL)
    assert behind == _fed(reader(), stream, TAIL)
    assert at_once == _fed(reader(), stream + BEGUN)
    assert behind == _fed(reader(), stream + BEGUN, TAIL[len(BEGUN) :])
    return at_once


def _fed(reader: FrameReader, *pieces: bytes) -> Fed:
    frames = [frame for piece in pieces for frame in reader.receive_data(piece)]
    return Fed(frames, None if reader.error is None else str(reader.error))
