"""Binary headers as RocketMQSerializable writes and reads them."""

import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError
from namesrv_remoting.serializers import encode_command, rocketmq_header
from tests.support.commands import decode_header

# code 9999, JAVA, version 479, opaque 9, flag 0; then remark and ext fields
START = b"\x27\x0f\x00\x01\xdf\x00\x00\x00\x09\x00\x00\x00\x00"
NONE = b"\x00\x00\x00\x00"
COMMAND = RemotingCommand(code=9999, opaque=9, version=479, language=0, serialize_type=1)


@pytest.mark.parametrize(
    ("command", "header"),
    [
        (
            RemotingCommand(
                code=103, opaque=12, version=2333, language=0, ext_fields={"key": "value"}, serialize_type=1
            ),
            b"\x00\x67\x00\x09\x1d\x00\x00\x00\x0c\x00\x00\x00\x00"
            + NONE
            + b"\x00\x00\x00\x0e" + b"\x00\x03key" + b"\x00\x00\x00\x05value",
        ),
        (
            RemotingCommand(code=-1, opaque=None, flag=1, remark="\u00e9", ext_fields={}, serialize_type=1),
            b"\xff\xff\x03\x01\xdf\x00\x00\x00\x00\x00\x00\x00\x01" + b"\x00\x00\x00\x02\xc3\xa9" + NONE,
        ),
    ],
    ids=["ext fields", "signed, utf-8, no opaque"],
)  # fmt: skip
def test_header_is_written_to_the_byte(command: RemotingCommand, header: bytes) -> None:
    """Fixed fields of 13 bytes, then the remark and the ext fields with their lengths."""
    length = len(header)

    assert rocketmq_header.encode_header(command) == header
    assert bytes([0, 0, 0, length + 4, 1, 0, 0, length]) + header == encode_command(command)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (RemotingCommand(code=32768, serialize_type=1), "code 32768 does not fit 16 bits"),
        (RemotingCommand(code=1, version=32768, serialize_type=1), "version 32768 does not fit 16 bits"),
        (RemotingCommand(code=1, opaque=1 << 31, serialize_type=1), "opaque 2147483648 does not fit 32 bits"),
        (RemotingCommand(code=1, flag=1 << 31, serialize_type=1), "flag 2147483648 does not fit 32 bits"),
        (
            RemotingCommand(code=1, ext_fields={"k" * 32768: ""}, serialize_type=1),
            "ext field name length 32768 does not fit 16 bits",
        ),
    ],
)
def test_value_that_does_not_fit_is_a_local_error(command: RemotingCommand, error: str) -> None:
    """Extension codes fit (20001 < 32768); larger codes cannot be encoded."""
    with pytest.raises(LocalProtocolError, match=f"^{error}$"):
        encode_command(command)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"\x27\x0f\x63" + START[3:] + NONE + NONE, RemotingCommand(code=9999, opaque=9, language=7, serialize_type=1)),
        (b"\x27\x0f\x00\xff\xff" + START[5:] + NONE + NONE,
         RemotingCommand(code=9999, opaque=9, version=-1, language=0, serialize_type=1)),
        (b"\x27\x0f\x00\x01\xdf\xff\xff\xff\xf9\x80\x00\x00\x03" + NONE + NONE,
         RemotingCommand(code=9999, opaque=-7, flag=-2147483645, language=0, serialize_type=1)),
        (START + NONE + b"\xff\xff\xff\xff", COMMAND),
        (START + NONE + b"\x80\x00\x00\x00", COMMAND),
    ],
    ids=["unknown language", "negative version", "negative opaque and flag", "ext length -1",
         "least ext length"],
)  # fmt: skip
def test_unusual_numbers_are_accepted(header: bytes, expected: RemotingCommand) -> None:
    """Numbers are accepted as in Java; an ext length of 0 or less means no ext fields."""
    assert decode_header(1, header) == expected


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        (b"\x00\x00\x00\x0b\x00\x05topic\x00\x00\x00\x00", {}),
        (b"\x00\x00\x00\x07\x00\x00\x00\x00\x00\x01x", {}),
        (b"\x00\x00\x00\x10\x00\x01a\x00\x00\x00\x01b\x00\x01c\x00\x00\x00\x01d", {"a": "b", "c": "d"}),
        (b"\x00\x00\x00\x10\x00\x01a\x00\x00\x00\x01b\x00\x01a\x00\x00\x00\x01d", {"a": "d"}),
    ],
    ids=["empty value", "empty key", "two", "twice"],
)
def test_length_0_means_null(ext: bytes, expected: dict[str, str]) -> None:
    """An empty value counts as missing, an empty key is ignored, and the last of two counts."""
    assert decode_header(1, START + NONE + ext).ext_fields == expected


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (START[:10], "unpack_from requires a buffer of at least 13 bytes for unpacking 13 bytes at offset 0"),
        (START, "unpack_from requires a buffer of at least 17 bytes for unpacking 4 bytes at offset 13"),
        (START + b"\x00\x00\x13\x88" + NONE, "remark of 5000 bytes, limit 4"),
        (START + b"\xff\xff\xff\xff" + NONE, "remark of -1 bytes, limit 4"),
        (START + b"\x00\x00\x00\x01x", "unpack_from requires a buffer of at least 22 bytes for unpacking 4 bytes"),
        (START + NONE + b"\x00\x00\x13\x88", "ext fields of 5000 bytes, limit 21"),
        (START + NONE + b"\x00\x00\x00\x07\xff\xff\x00\x00\x00\x01x", "ext field name of -1 bytes, limit 5"),
        (START + NONE + b"\x00\x00\x00\x07\x00\x08\x00\x00\x00\x01x", "ext field name of 8 bytes, limit 5"),
        (START + NONE + b"\x00\x00\x00\x07\x00\x01k\x00\x00\x00\x09", "ext field value of 9 bytes, limit 0"),
        (START + NONE + b"\x00\x00\x00\x07\x00\x01k\xff\xff\xff\xff", "ext field value of -1 bytes, limit 0"),
        # empty fields count as well
        (START + NONE + b"\x00\x00\x06\x06" + bytes(257 * 6), "more than 256 ext fields"),
        (START + b"\x00\x00\x00\x02\xff\xfe" + NONE, "'utf-8' codec can't decode byte 0xff in position 0"),
        (START + b"\x00\x00\x00\x16" + NONE, "remark of 22 bytes, limit 4"),
        (START + b"\x00\x00\x00\x04" + NONE, "unpack_from requires a buffer of at least 25 bytes"),
        (START + NONE + b"\x00\x00\x00\x16", "ext fields of 22 bytes, limit 21"),
        # a field that ends outside the ext fields
        (START + NONE + b"\x00\x00\x00\x02\x00\x01k", "unpack_from requires a buffer of at least 28 bytes"),
    ],
)
@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x02" + bytes(64)])
def test_length_beyond_its_limit_is_a_protocol_error(header: bytes, error: str, body: bytes) -> None:
    """Negative lengths and those beyond the declared header or ext fields are refused, whatever bytes follow."""
    with pytest.raises(RemoteProtocolError, match=f"^binary header: {error}") as caught:
        decode_header(1, header, body)
    assert caught.value.reason == "header"
