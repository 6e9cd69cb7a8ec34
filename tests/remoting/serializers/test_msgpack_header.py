"""A native header is an array of six, written and read to the byte, and bounded whatever it holds."""

import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.serializers import encode_command
from tests.support.commands import decode, decode_header

# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "frame"),
    [
        (
            RemotingCommand(code=106, opaque=5, serialize_type=77),
            b"\x00\x00\x00\x0d\x4d\x00\x00\x09\x96\x6a\x05\x00\xcd\x01\xdf\xc0\xc0",
        ),
        (
            RemotingCommand(
                code=20001, opaque=-7, flag=1, remark="ok", ext_fields={"k": "v"}, body=b"\x80", serialize_type=77
            ),
            b"\x00\x00\x00\x16\x4d\x00\x00\x11\x96\xcd\x4e\x21\xf9\x01\xcd\x01\xdf\xa2ok\x81\xa1k\xa1v\x80",
        ),
        (
            RemotingCommand(code=0, opaque=None, flag=1, version=480, ext_fields={}, serialize_type=77),
            b"\x00\x00\x00\x0d\x4d\x00\x00\x09\x96\x00\x00\x01\xcd\x01\xe0\xc0\x80",
        ),
    ],
    ids=["request", "answer", "no opaque, empty ext fields"],
)
def test_frame_is_written_to_the_byte(command: RemotingCommand, frame: bytes) -> None:
    """Code, opaque, flag, version, remark or nil, ext fields or nil, each as short as msgpack has it."""
    assert frame == encode_command(command)


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"\x96\x6a\x05\x00\xcd\x01\xdf\xc0\xc0", RemotingCommand(code=106, opaque=5, language=7, serialize_type=77)),
        (
            b"\x96\x6a\xd2\x80\x00\x00\x00\x02\x00\xa0\x80",
            RemotingCommand(
                code=106, opaque=-2147483648, flag=2, version=0, language=7, remark="", ext_fields={}, serialize_type=77
            ),
        ),
        (
            b"\xdc\x00\x06\xcf\x00\x00\x00\x00\x00\x00\x00\x6a\x05\x00\x00\xc0\xc0",
            RemotingCommand(code=106, opaque=5, version=0, language=7, serialize_type=77),
        ),
    ],
    ids=["short", "empty", "long spellings"],
)
def test_header_is_read(header: bytes, expected: RemotingCommand) -> None:
    """The language is not told, so it is OTHER."""
    assert expected == decode_header(77, header)


def test_frame_with_a_body_is_read() -> None:
    """However it is chopped."""
    frame = b"\x00\x00\x00\x10\x4d\x00\x00\x09\x96\x6a\x05\x00\xcd\x01\xdf\xc0\xc0\x81\xa1k"

    assert RemotingCommand(code=106, opaque=5, language=7, body=b"\x81\xa1k", serialize_type=77) == decode(frame)


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        (b"\xc0", None),
        (b"\x80", {}),
        (b"\x83\xa1a\xc3\xa1b\xc2\xa1c\x07", {"a": "true", "b": "false", "c": "7"}),
        (b"\x81\xa1a\xd3\x80\x00\x00\x00\x00\x00\x00\x00", {"a": "-9223372036854775808"}),
        (b"\x82\xa1a\xc0\xa1b\xa1v", {"b": "v"}),
        (b"\x81\xa6\xe4\xb8\xbb\xe9\xa2\x98\xa0", {"\u4e3b\u9898": ""}),
    ],
)
def test_ext_fields_become_strings(ext: bytes, expected: dict[str, str] | None) -> None:
    """Booleans and integers are spelt as Java's; nil is as good as missing."""
    assert expected == decode_header(77, b"\x96\x6a\x05\x00\x00\xc0" + ext).ext_fields


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"", "header cannot be read: "),
        (b"\xc1", "header cannot be read: "),
        (b"\x90", "header cannot be read: Expected `array`"),
        (b"\x95\x6a\x05\x00\x00\xc0", "header cannot be read: Expected `array`"),
        (b"\x97\x6a\x05\x00\x00\xc0\xc0\xc0", "header cannot be read: "),
        (b"\x80", "header cannot be read: Expected `array`"),
        (b"\xc0", "header cannot be read: Expected `array`"),
        (b"\xa6ninety", "header cannot be read: Expected `array`"),
        (b"\x96\x6a\x05\x00\x00\xc0", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xc0\xc0\xc0", "header cannot be read: "),
        (b"\x96\xc0\x05\x00\x00\xc0\xc0", "header cannot be read: Expected "),
        (b"\x96\xc3\x05\x00\x00\xc0\xc0", "header cannot be read: Expected "),
        (b"\x96\x6a\xc0\x00\x00\xc0\xc0", "header cannot be read: Expected "),
        (b"\x96\x6a\xce\x80\x00\x00\x00\x00\x00\xc0\xc0", "header field opaque: 2147483648 is not a 32-bit integer$"),
        (b"\x96\x6a\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\xc0\xc0",
         "header field opaque: 18446744073709551615 is not a 32-bit integer$"),
        (b"\x96\x6a\x05\xa1x\x00\xc0\xc0", "header cannot be read: Expected "),
        (b"\x96\x6a\x05\x00\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xc0\xc0", "header cannot be read: Expected "),
        (b"\x96\x6a\x05\x00\x00\x07\xc0", "header cannot be read: Expected "),
        (b"\x96\x6a\x05\x00\x00\xa2\xff\xfe\xc0", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xa3\xed\xa0\x80\xc0", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xc4\x01x\xc0", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xc0\xd4\x05x", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xc0\xd6\xff\x00\x00\x00\x00", "header cannot be read: "),
        (b"\x96\x6a\x05\x00\x00\xc0\x90", "header cannot be read: Expected "),
        (b"\x96\x6a\x05\x00\x00\xc0\xa1x", "header cannot be read: Expected "),
        (b"\x96\x91" * 8_000, "header cannot be read: "),
    ],
)  # fmt: skip
def test_what_is_no_header_is_a_protocol_error(header: bytes, error: str) -> None:
    """Wrong types, wrong lengths, and spellings that a header has no use for."""
    with pytest.raises(RemoteProtocolError, match=f"^{error}") as caught:
        decode_header(77, header)
    assert caught.value.reason == "header"


@pytest.mark.parametrize(
    ("ext", "error"),
    [
        (b"\x81\x07\xa1v", "header cannot be read: "),
        (b"\x81\xa1k\x90", "header cannot be read: Expected "),
        (b"\x81\xa1k\x80", "header cannot be read: Expected "),
        (b"\x81\xa1k\xca\x3f\x80\x00\x00", "header cannot be read: Expected "),
        (b"\x81\xa1k\xc4\x00", "header cannot be read: Expected "),
        (
            b"\xde\x01\x01" + b"".join(b"\xa3%03d\xa0" % number for number in range(257)),
            "header cannot be read: Expected `object` of length <= 256",
        ),
        (b"\x81\xda\x01\x00" + b"k" * 256 + b"\xa0", "ext field name of 256 characters, limit 255$"),
        (b"\x81\xa1k\xda\x80\x01" + b"v" * 32769, "ext field k of 32769 characters, limit 32768$"),
        (b"\xdf\xff\xff\xff\xff", "header cannot be read: "),
        (b"\xdd\xff\xff\xff\xff", "header cannot be read: "),
        (b"\xdb\xff\xff\xff\xff", "header cannot be read: "),
    ],
)
def test_ext_fields_are_bounded(ext: bytes, error: str) -> None:
    """Strings, booleans and integers, 256 of them; a length that lies allocates nothing."""
    with pytest.raises(RemoteProtocolError, match=f"^{error}"):
        decode_header(77, b"\x96\x6a\x05\x00\x00\xc0" + ext)
