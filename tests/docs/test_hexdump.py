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


def test_meaning_stands_beside_the_bytes() -> None:
    """Of a native frame, token by token."""
    frame = encode_command(
        RemotingCommand(code=904, opaque=1, ext_fields={"a": "b"}, body=b"\x81\xa1x\x92\x01\xc3", serialize_type=77)
    )
    meanings = [line[50:] for line in dump(frame).splitlines()]

    assert [
        "25 bytes follow",
        "serialize type 77: MSGPACK",
        "of which 15 are the header",
        "array of 6",
        "  code: 904",
        "  opaque: 1",
        "  flag: 0",
        "  version: 479",
        "  remark: nil",
        "  ext: map of 1",
        '    "a": "b"',
        "map of 1",
        '  "x": array of 2',
        "    1",
        "    true",
    ] == meanings


def test_line_without_bytes_is_an_error() -> None:
    """So that a page cannot lose one."""
    with pytest.raises(ValueError, match="no bytes: 'code 105'"):
        undump("00 69  code 105\ncode 105\n")
