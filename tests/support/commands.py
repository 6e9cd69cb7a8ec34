"""Strategies for messages that may go over the wire, and the one way in which tests read a frame."""

from hypothesis import strategies as st

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame
from tests.support.feeding import feed

# everything that UTF-8 has; lone surrogates have none
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
EXT_FIELDS = st.dictionaries(TEXT, TEXT, max_size=8)


def decode(stream: bytes) -> RemotingCommand:
    """The one command in a stream, however the stream is chopped."""
    frames, error = feed(stream)
    assert error is None
    (frame,) = frames
    return decode_frame(frame)


def decode_header(serialize_type: int, header: bytes, body: bytes = b"") -> RemotingCommand:
    """The command with this header."""
    return decode_frame(Frame(serialize_type, header, body))
