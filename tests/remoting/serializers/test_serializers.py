"""The frame's type byte chooses the serializer, both ways."""

import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import SERIALIZERS, decode_frame, encode_command
from namesrv_remoting.serializers.ranges import check_ext_fields, check_sendable, int32


@pytest.mark.parametrize(("serialize_type", "first"), [(0, b"{"), (1, b"\x00\x6a"), (77, b"\x96")])
def test_type_chooses_the_serializer(serialize_type: int, first: bytes) -> None:
    """JSON, binary, msgpack: told by the byte before the header length, and by how the header begins."""
    frame = encode_command(RemotingCommand(code=106, serialize_type=serialize_type))

    assert serialize_type == frame[4]
    assert first == frame[8 : 8 + len(first)]


def test_header_is_read_by_the_frames_type() -> None:
    """A good header of one type is a bad one of another."""
    assert decode_frame(Frame(0, b'{"code":106}', b"")).code == 106
    for wrong in (1, 77):
        with pytest.raises(RemoteProtocolError):
            decode_frame(Frame(wrong, b'{"code":106}', b""))


def test_there_are_three() -> None:
    """0 JSON, 1 ROCKETMQ, 77 MSGPACK."""
    assert {0, 1, 77} == set(SERIALIZERS)


@pytest.mark.parametrize("serialize_type", [0, 1, 77])
def test_command_beyond_the_limit_is_our_fault(serialize_type: int) -> None:
    """Whichever way it is spelt, what the receiver would refuse is not sent."""
    command = RemotingCommand(code=106, body=bytes(1024), serialize_type=serialize_type)

    with pytest.raises(LocalProtocolError, match=r"^frame of \d+ bytes, limit 1024$"):
        encode_command(command, max_frame_bytes=1024)


@pytest.mark.parametrize("value", [-2147483648, -1, 0, 2147483647])
def test_int32_takes_an_int32(value: int) -> None:
    """From the least to the greatest."""
    assert value == int32("opaque", value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2147483648, "header field opaque: 2147483648 is not a 32-bit integer"),
        (-2147483649, "header field opaque: -2147483649 is not a 32-bit integer"),
        (10**400, "header field opaque: a number is not a 32-bit integer"),
    ],
)
def test_int32_refuses_the_rest(value: int, error: str) -> None:
    """By name and value; a number of hundreds of digits is not shown."""
    with pytest.raises(RemoteProtocolError, match=f"^{error}$"):
        int32("opaque", value)


@pytest.mark.parametrize("value", [-32768, 32767])
def test_sendable_number_fits_its_bits(value: int) -> None:
    """16 bits, signed."""
    assert value == check_sendable("code", value, 16)
    with pytest.raises(LocalProtocolError, match=rf"^code {value * 2} does not fit 16 bits$"):
        check_sendable("code", value * 2, 16)


def test_ext_fields_within_their_bounds_are_themselves() -> None:
    """Nothing is copied or changed."""
    ext_fields = {"topic": "T"}

    assert ext_fields is check_ext_fields(ext_fields)
