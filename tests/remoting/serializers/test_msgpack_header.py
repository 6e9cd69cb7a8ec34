"""Native headers: an array of six, written and read to the byte, with limits."""

import msgpack
import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.serializers import encode_command
from tests.support.commands import decode_header


@pytest.mark.parametrize(
    ("command", "frame"),
    [
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
    ids=["answer", "no opaque, empty ext fields"],
)
def test_frame_is_written_to_the_byte(command: RemotingCommand, frame: bytes) -> None:
    """The array is code, opaque, flag, version, remark or nil, ext fields or nil, each in msgpack's shortest form."""
    assert encode_command(command) == frame


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
    """The header has no language, so that it is OTHER."""
    assert decode_header(77, header) == expected


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
    """Booleans and integers become Java's strings; nil counts as missing."""
    assert decode_header(77, b"\x96\x6a\x05\x00\x00\xc0" + ext).ext_fields == expected


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"\xc1", b"\x90", b"\x80", b"\xc0", b"\xa6ninety", b"\x96\x91" * 8_000),
        *(b"\x95\x6a\x05\x00\x00\xc0", b"\x97\x6a\x05\x00\x00\xc0\xc0\xc0"),
        *(b"\x96\x6a\x05\x00\x00\xc0", b"\x96\x6a\x05\x00\x00\xc0\xc0\xc0"),
        # invalid UTF-8, extension types, and false lengths
        *(b"\x96\x6a\x05\x00\x00\xa2\xff\xfe\xc0", b"\x96\x6a\x05\x00\x00\xa3\xed\xa0\x80\xc0"),
        *(b"\x96\x6a\x05\x00\x00\xc0\xd4\x05x", b"\x96\x6a\x05\x00\x00\xc0\xd6\xff\x00\x00\x00\x00"),
        *(b"\x96\x6a\x05\x00\x00\xc0" + kind + b"\xff\xff\xff\xff" for kind in (b"\xdf", b"\xdd", b"\xdb")),
    ],
)
def test_invalid_header_is_a_protocol_error(header: bytes) -> None:
    """Other shapes, truncation, trailing bytes and unused types are refused."""
    with pytest.raises(RemoteProtocolError, match=r"^header cannot be read: ") as caught:
        decode_header(77, header)
    assert caught.value.reason == "header"


NO_EXT_FIELDS: tuple[object, ...] = ([], "x", {7: "v"}, {"k": []}, {"k": {}}, {"k": 1.5}, {"k": b""})


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        *((at, value, "header cannot be read: Expected ") for at in range(4) for value in (None, True, "x", 1.0)),
        *(
            (at, value, f"header field {name}: {value} is not a 32-bit integer$")
            for at, name in enumerate(("code", "opaque", "flag", "version"))
            for value in (2**31, 2**64 - 1)
        ),
        *((4, value, "header cannot be read: Expected ") for value in (7, b"x")),
        *((5, value, "header cannot be read: Expected ") for value in NO_EXT_FIELDS),
        (5, dict.fromkeys(map(str, range(257)), ""), "header cannot be read: Expected `object` of length <= 256"),
        (5, {"k" * 256: ""}, "ext field name of 256 characters, limit 255$"),
        (5, {"k": "v" * 32769}, "ext field k of 32769 characters, limit 32768$"),
    ],
)
def test_members_have_types_and_limits(at: int, value: object, error: str) -> None:
    """Four 32-bit integers, a text, and 256 ext fields of strings, booleans and integers are accepted."""
    members: list[object] = [106, 5, 0, 479, None, None]
    members[at] = value

    with pytest.raises(RemoteProtocolError, match=f"^{error}"):
        decode_header(77, msgpack.packb(members))
