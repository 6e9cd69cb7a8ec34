"""The frame's type byte chooses the serializer, both ways; what all of them have in common."""

import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_remoting.serializers.ranges import check_sendable, int32


@pytest.mark.parametrize(("serialize_type", "first"), [(0, b"{"), (1, b"\x00\x6a"), (77, b"\x96")])
def test_type_chooses_the_serializer(serialize_type: int, first: bytes) -> None:
    """JSON, binary, msgpack: told by the byte before the header length, and by how the header begins."""
    command = RemotingCommand(code=106, body=bytes(1024), serialize_type=serialize_type)
    frame = encode_command(command)

    assert serialize_type == frame[4]
    assert first == frame[8 : 8 + len(first)]
    with pytest.raises(LocalProtocolError, match=r"^frame of \d+ bytes, limit 1024$"):
        encode_command(command, max_frame_bytes=1024)


def test_header_is_read_by_the_frames_type() -> None:
    """A good header of one type is a bad one of another."""
    assert decode_frame(Frame(0, b'{"code":106}', b"")).code == 106
    for wrong in (1, 77):
        with pytest.raises(RemoteProtocolError):
            decode_frame(Frame(wrong, b'{"code":106}', b""))


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
    """Refused by name and value; a number of hundreds of digits is not shown."""
    if error is None:
        assert value == int32("opaque", value)
        return
    with pytest.raises(RemoteProtocolError, match=f"^{error}$"):
        int32("opaque", value)


@pytest.mark.parametrize("value", [-32768, 32767])
def test_sendable_number_fits_its_bits(value: int) -> None:
    """16 bits, signed."""
    assert value == check_sendable("code", value, 16)
    with pytest.raises(LocalProtocolError, match=rf"^code {value * 2} does not fit 16 bits$"):
        check_sendable("code", value * 2, 16)
