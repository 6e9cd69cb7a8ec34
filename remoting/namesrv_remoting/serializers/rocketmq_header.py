"""Header in RocketMQ's binary form (serialize type 1).

int16 code | u8 language | int16 version | int32 opaque | int32 flag | int32 length, remark | int32 length, ext fields;
an ext field is int16 length, key | int32 length, value. A length of 0 means null.
"""

import struct
from struct import Struct
from typing import Final

from namesrv_remoting.codes import LanguageCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers.ranges import MAX_EXT_FIELDS, check_ext_fields, check_sendable

_FIXED: Final = Struct(">hBhii")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LANGUAGES: Final = frozenset(LanguageCode)


def encode_header(command: RemotingCommand) -> bytes:
    """The bytes of the header. Raises LocalProtocolError if a number or the name of a field is too large for it."""
    remark = (command.remark or "").encode()
    ext = b"".join(
        _INT16.pack(check_sendable("ext field name length", len(key), 16)) + key + _INT32.pack(len(value)) + value
        for key, value in ((k.encode(), v.encode()) for k, v in (command.ext_fields or {}).items())
    )
    fixed = _FIXED.pack(
        check_sendable("code", command.code, 16),
        command.language,
        check_sendable("version", command.version, 16),
        check_sendable("opaque", command.opaque or 0, 32),
        check_sendable("flag", command.flag, 32),
    )
    return fixed + _INT32.pack(len(remark)) + remark + _INT32.pack(len(ext)) + ext


def decode(frame: Frame) -> RemotingCommand:
    """The command in a frame. Raises RemoteProtocolError for a wrong length, too many fields, or text not in UTF-8.

    As in Java's decoder, the body begins where the ext fields end, and has the length that follows from the declared
    header length.
    """
    data, body = frame.header, frame.body
    declared = len(data)
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(data)
        remark, at = _text(data, _FIXED.size, _INT32, "remark", declared)
        (ext_length,) = _INT32.unpack_from(data, at)
        ext_fields, end = _ext_fields(data, at + _INT32.size, ext_length, declared)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"binary header: {error}", reason="header") from error
    if end < declared:
        # A memoryview, so that a large body is copied only once.
        with memoryview(body) as view:
            body = b"".join((data[end:], view[: max(0, len(body) + end - declared)]))[: len(body)]
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        version=version,
        language=language if language in _LANGUAGES else LanguageCode.OTHER,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _ext_fields(data: bytes, at: int, length: int, limit: int) -> tuple[dict[str, str] | None, int]:
    if length <= 0:
        return None, at
    if length > limit:
        raise RemoteProtocolError(f"binary header: ext fields of {length} bytes, limit {limit}", reason="header")
    end = at + length
    fields: dict[str, str] = {}
    count = 0
    while at < end:
        count += 1
        if count > MAX_EXT_FIELDS:
            raise RemoteProtocolError(f"binary header: more than {MAX_EXT_FIELDS} ext fields", reason="header")
        key, at = _text(data, at, _INT16, "ext field name", length)
        value, at = _text(data, at, _INT32, "ext field value", length)
        if key is not None and value is not None:
            fields[key] = value
    return check_ext_fields(fields), at


def _text(data: bytes, at: int, length_format: Struct, name: str, limit: int) -> tuple[str | None, int]:
    (length,) = length_format.unpack_from(data, at)
    at += length_format.size
    limit = min(limit, len(data) - at)
    if not 0 <= length <= limit:
        raise RemoteProtocolError(f"binary header: {name} of {length} bytes, limit {limit}", reason="header")
    return (data[at : at + length].decode() if length else None), at + length
