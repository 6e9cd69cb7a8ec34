"""The choice of the serializer by the frame's type byte, and properties of all serializers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError
from namesrv_remoting.serializers import encode_command
from namesrv_remoting.serializers.ranges import check_sendable, int32
from tests.support.commands import INT32, decode_header

# code 9999, JAVA, version 479, opaque 9, flag 0
BINARY = b"\x27\x0f\x00\x01\xdf\x00\x00\x00\x09\x00\x00\x00\x00"


@pytest.mark.parametrize(("serialize_type", "first"), [(0, b"{"), (1, b"\x00\x6a"), (77, b"\x96")])
def test_type_chooses_the_serializer(serialize_type: int, first: bytes) -> None:
    """JSON, binary and msgpack differ in the byte before the header length and in the header's first byte."""
    command = RemotingCommand(code=106, body=bytes(1024), serialize_type=serialize_type)
    frame = encode_command(command)

    assert frame[4] == serialize_type
    assert frame[8 : 8 + len(first)] == first
    with pytest.raises(LocalProtocolError, match=r"^frame of \d+ bytes, limit 1024$"):
        encode_command(command, max_frame_bytes=1024)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-2147483648, None),
        (0, None),
        (2147483647, None),
        (2147483648, "header field opaque: 2147483648 is not a 32-bit integer"),
        (-2147483649, "header field opaque: -2147483649 is not a 32-bit integer"),
        (10**400, "header field opaque: a number is not a 32-bit integer"),
    ],
)
def test_numbers_fit_javas_int(value: int, error: str | None) -> None:
    """The error has name and value; a number with hundreds of digits is shortened."""
    if error is None:
        assert int32("opaque", value) == value
        return
    with pytest.raises(RemoteProtocolError, match=f"^{error}$"):
        int32("opaque", value)


# all of Unicode but lone surrogates, which UTF-8 cannot encode
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
EXT_FIELDS = st.dictionaries(TEXT, TEXT, max_size=8)
NOT_EMPTY = TEXT.filter(bool)


@pytest.mark.parametrize("value", [-32768, 32767])
def test_sendable_number_fits_its_bits(value: int) -> None:
    """The code has 16 bits, signed."""
    assert check_sendable("code", value, 16) == value
    with pytest.raises(LocalProtocolError, match=rf"^code {value * 2} does not fit 16 bits$"):
        check_sendable("code", value * 2, 16)


def commands(serialize_type: int) -> st.SearchStrategy[RemotingCommand]:
    """Commands that each header can carry: binary ones small numbers and nothing empty, native ones no language."""
    is_binary = serialize_type == SerializeType.ROCKETMQ
    ext_fields = st.dictionaries(NOT_EMPTY, NOT_EMPTY, min_size=1, max_size=8) if is_binary else EXT_FIELDS
    return st.builds(
        RemotingCommand,
        code=INT16 if is_binary else INT32,
        opaque=INT32,
        flag=INT32,
        version=INT16 if is_binary else INT32,
        language=st.just(7) if serialize_type == SerializeType.MSGPACK else st.integers(0, 13),
        remark=st.none() | (NOT_EMPTY if is_binary else TEXT),
        ext_fields=st.none() | ext_fields,
        body=st.binary(max_size=40),
        serialize_type=st.just(serialize_type),
    )


@pytest.mark.parametrize(
    ("serialize_type", "headers"),
    [
        (0, st.binary(max_size=200) | TEXT.map(str.encode)
            | st.text('{}[]",:0178.eE+-\\untrflascodp ').map(str.encode)),
        (1, st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: BINARY + rest)),
        (77, st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: b"\x96" + rest)),
    ],
)  # fmt: skip
@given(data=st.data(), body=st.binary(max_size=20))
def test_no_bytes_break_the_reader(
    serialize_type: int, headers: st.SearchStrategy[bytes], data: st.DataObject, body: bytes
) -> None:
    """Any input gives a command that can be sent on, or a protocol error."""
    try:
        command = decode_header(serialize_type, data.draw(headers), body)
    except RemoteProtocolError:
        return
    assert len(body) == len(command.body)
    encode_command(command)
