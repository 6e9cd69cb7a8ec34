"""JSON headers: written as Java does, read with fastjson's leniency."""

from dataclasses import replace
from typing import Any

import pytest

from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.serializers import encode_command
from tests.support.commands import decode_header

DEFAULTS = RemotingCommand(code=0, opaque=None, version=0, language=0)


@pytest.mark.parametrize(
    ("command", "header"),
    [
        (
            RemotingCommand(code=0, opaque=22, flag=1, ext_fields={"changed": "false"}, remark="ok\u00e9", language=0),
            (
                b'{"code":0,"extFields":{"changed":"false"},"flag":1,"language":"JAVA","opaque":22,"remark":"ok\xc3\xa9",'
                b'"serializeTypeCurrentRPC":"JSON","version":479}'
            ),
        ),
        (
            RemotingCommand(code=0, opaque=None, flag=1, ext_fields={}, remark='a"b\n'),
            (
                b'{"code":0,"extFields":{},"flag":1,"language":"PYTHON","opaque":0,"remark":"a\\"b\\n",'
                b'"serializeTypeCurrentRPC":"JSON","version":479}'
            ),
        ),
    ],
    ids=["answer", "no opaque"],
)
def test_header_is_written_to_the_byte(command: RemotingCommand, header: bytes) -> None:
    """Members are alphabetical, compact, without nulls; empty ext fields are written, None is not."""
    length = len(header)

    assert bytes([0, 0, 0, length + 4, 0, 0, 0, length]) + header == encode_command(command)


@pytest.mark.parametrize(
    ("header", "changed"),
    [
        # missing members have Java's defaults: code, flag and version 0, language JAVA, no opaque
        (b"{}", {}),
        (b'{"code":null,"opaque":null,"flag":null,"version":null,"remark":null,"extFields":null}', {}),
        (b'{"code":"9999","opaque":"-7","flag":"2"}', {"code": 9999, "opaque": -7, "flag": 2}),
        (b"{code:9999,'opaque':7,version:479}", {"code": 9999, "opaque": 7, "version": 479}),
        (b'\xef\xbb\xbf{"code":9999,"opaque":7}', {"code": 9999, "opaque": 7}),
        (b'{"opaque":7,"zzz":[1,2]}', {"opaque": 7}),
        (b'{"opaque":-2147483648,"flag":2147483647}', {"opaque": -2147483648, "flag": 2147483647}),
        (b'{"code":-1}', {"code": -1}),
        (b'{"code":105,"code":106}', {"code": 106}),
        (b'{"remark":"\\u00e9\\n"}', {"remark": "\u00e9\n"}),
        (b"{remark:1}", {"remark": None}),
        # the frame contains the type
        (b'{"serializeTypeCurrentRPC":"ROCKETMQ"}', {}),
        # a language is a name or an ordinal; an unknown one is OTHER
        (b'{"language":"GO"}', {"language": 9}),
        (b'{"language":"KLINGON"}', {"language": 7}),
        (b'{"language":9}', {"language": 9}),
        # ext fields become strings, because the Node client sends JavaScript types
        (b'{"extFields":{}}', {"ext_fields": {}}),
        (b'{"extFields":{"namespace":1,"key":true}}', {"ext_fields": {"namespace": "1", "key": "true"}}),
        (b'{"extFields":{"namespace":null,"key":1.5}}', {"ext_fields": {"key": "1.5"}}),
        (b'{"extFields":{"b":-0.25,"c":9223372036854775807}}', {"ext_fields": {"b": "-0.25", "c": str((1 << 63) - 1)}}),
        (b'{"extFields":{topic:"T"}}', {"ext_fields": {"topic": "T"}}),
        (b"{\"extFields\":{0:\"a\",'b':'c'}}", {"ext_fields": {"0": "a", "b": "c"}}),
        (b'{"extFields":{"topic":"\xe4\xb8\xbb\xe9\xa2\x98"}}', {"ext_fields": {"topic": "\u4e3b\u9898"}}),
    ],
)
def test_header_is_read_with_fastjsons_leniency(header: bytes, changed: dict[str, Any]) -> None:
    """Missing and null members and other types are accepted."""
    assert replace(DEFAULTS, **changed) == decode_header(0, header)


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"null", b"[]", b"1", b'{"code":105,,,', b'{"code":105', b'{"code":105}{', b"GET / HTTP/1.1"),
        b"\x96\x00\x00\x00\x00\xc0\xc0",
        # outside Java's int
        *(b'{"flag":1e99}', b'{"version":99999999999999999999999999}'),
        *(b'{"code":1.5}', b'{"code":[105]}', b'{"code":{}}'),
        *(b'{"code":"%b"}' % text for text in (b"105x", b"1_0", b" 1", b"\xd9\xa3", b"")),
        *(b'{"language":99}', b'{"language":-1}', b'{"extFields":[]}', b'{"extFields":"a"}'),
        # cannot be encoded in UTF-8
        *(b'{"remark":"\xff\xfe"}', b'{"remark":"\\ud800"}', b'{"extFields":{"\\udc00":"x"}}'),
        *(b"[" * 60_000, b'{"a":' * 12_000, b'{"extFields":{"a":' + b"[" * 30_000),
    ],
)
def test_invalid_header_is_a_protocol_error(header: bytes) -> None:
    """Any nesting and truncation raises a protocol error, which closes the connection."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode_header(0, header)
    assert caught.value.reason == "header"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("ext_fields", "error"),
    [
        (b"{" + b",".join(b'"%d":""' % number for number in range(257)) + b"}", "257 ext fields, limit 256"),
        (b'{"' + b"k" * 256 + b'":""}', "ext field name of 256 characters, limit 255"),
        (b'{"k":"' + b"v" * 32769 + b'"}', "ext field k of 32769 characters, limit 32768"),
    ],
)
def test_ext_fields_are_bounded(ext_fields: bytes, error: str) -> None:
    """Number, names and values are limited, also for unquoted ones."""
    for header in (b'{"extFields":' + ext_fields + b"}", b"{extFields:" + ext_fields + b"}"):
        with pytest.raises(RemoteProtocolError) as caught:
            decode_header(0, header)
        lenient = f"header cannot be read: json of {len(header)} bytes, limit 4096"
        assert str(caught.value) == (lenient if header.startswith(b"{e") and len(header) > 4096 else error)


def test_ext_fields_at_their_limits_are_accepted() -> None:
    """The limits are 256 fields, 255 characters of a name and 32,768 of a value."""
    many = b"{" + b",".join(b'"%d":""' % number for number in range(256)) + b"}"
    large = b'{"' + b"k" * 255 + b'":"' + b"v" * 32768 + b'"}'

    assert len(decode_header(0, b'{"extFields":' + many + b"}").ext_fields or {}) == 256
    assert decode_header(0, b'{"extFields":' + large + b"}").ext_fields == {"k" * 255: "v" * 32768}
