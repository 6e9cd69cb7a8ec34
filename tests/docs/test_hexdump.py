"""A dump shows all bytes, and their meaning."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from tests.docs.hexdump import dump, undump
from tests.support.commands import EXT_FIELDS, INT16, INT32

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=30,
)


@given(INT16, INT32, EXT_FIELDS, VALUES, st.sampled_from((0, 1, 77)))
def test_no_byte_is_lost(code: int, opaque: int, ext: dict[str, str], body: object, serialize_type: int) -> None:
    """Whatever is in a frame, its dump has all of it, in order."""
    command = RemotingCommand(
        code=code, opaque=opaque, ext_fields=ext, body=msgpack.packb(body), serialize_type=serialize_type
    )
    frame = encode_command(command)

    assert frame == undump(dump(frame))


def test_line_without_bytes_is_an_error() -> None:
    """So that a page cannot lose one."""
    with pytest.raises(ValueError, match="no bytes: 'code 105'"):
        undump("00 69  code 105\ncode 105\n")
