"""Hypothesis strategies for parts of registrations and routes, and a decoder of headers."""

from hypothesis import strategies as st

from namesrv_remoting.bodies.topic import DataVersion, TopicQueueMappingInfo
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# all of Unicode but lone surrogates, which UTF-8 cannot encode
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
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


def decode_header(serialize_type: int, header: bytes, body: bytes = b"") -> RemotingCommand:
    """The command with this header."""
    return decode_frame(Frame(serialize_type, header, body))
