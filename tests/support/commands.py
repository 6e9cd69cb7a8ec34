"""Hypothesis strategies for messages and registrations, and the one frame decoder of the tests."""

from typing import NamedTuple

from hypothesis import strategies as st

from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Frame, FrameReader
from namesrv_remoting.serializers import decode_frame

# all of Unicode but lone surrogates, which UTF-8 cannot encode
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
EXT_FIELDS = st.dictionaries(TEXT, TEXT, max_size=8)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# lone surrogates cannot be encoded in UTF-8
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
# the text lines of a compressed registration are split at blanks
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1, max_size=20)
VERSIONS = st.builds(DataVersion, INT64, INT64, INT64)
MAPPINGS = st.builds(
    TopicQueueMappingInfo,
    topic=st.none() | NAMES,
    bname=st.none() | NAMES,
    scope=st.none() | NAMES,
    epoch=INT64,
    total_queues=INT32,
    dirty=st.booleans(),
    curr_id_map=st.none() | st.dictionaries(INT32, INT32, max_size=4),
)
REGISTRATIONS = st.builds(
    RegisterBrokerBody,
    topic_configs=st.lists(
        st.builds(TopicConfig, NAMES, INT32, INT32, INT32, INT32), max_size=5, unique_by=lambda topic: topic.topic_name
    ).map(tuple),
    data_version=VERSIONS,
    mappings=st.dictionaries(NAMES, MAPPINGS, max_size=3),
    filter_servers=st.lists(NAMES, max_size=3).map(tuple),
)

# Bytes that may follow a frame: a whole frame (JSON header `{}`, body `t`), and an incomplete one.
TAIL = b"\x00\x00\x00\x07\x00\x00\x00\x02{}t"
TAIL_FRAME = Frame(0, b"{}", b"t")
BEGUN = TAIL[:9]


class Fed(NamedTuple):
    """Frames decoded from a stream, and the error that ended it, if any."""

    frames: list[Frame]
    error: str | None


def feed(stream: bytes, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES) -> Fed:
    """Decode a stream at once, byte by byte and with bytes after it, and check that the results agree.

    After whole frames the following frame is decoded as well; after a broken one nothing is.
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


def decode(stream: bytes) -> RemotingCommand:
    """The one command in a stream, however the stream is split."""
    frames, error = feed(stream)
    assert error is None
    (frame,) = frames
    return decode_frame(frame)


def decode_header(serialize_type: int, header: bytes, body: bytes = b"") -> RemotingCommand:
    """The command with this header."""
    return decode_frame(Frame(serialize_type, header, body))
