"""Header in msgpack (serialize type 77, ours).

An array [code, opaque, flag, version, remark | nil, ext | nil]; ext is a map of str to str, int or bool.
"""

from typing import Final

import msgpack

from namesrv_remoting.codes import LanguageCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers.ranges import MAX_EXT_FIELDS, MAX_EXT_VALUE_BYTES, check_ext_fields, int32

# Every bound is explicit: without them one mebibyte of empty maps becomes 73 times its size in objects.
_LIMITS: Final = {
    "max_str_len": MAX_EXT_VALUE_BYTES,
    "max_bin_len": 0,
    "max_array_len": 6,
    "max_map_len": MAX_EXT_FIELDS,
    "max_ext_len": 0,
}
_MEMBERS: Final = 6


def encode_header(command: RemotingCommand) -> bytes:
    """The header's bytes."""
    ext = None if command.ext_fields is None else dict(command.ext_fields)
    packed: bytes = msgpack.packb(
        [int(command.code), command.opaque or 0, command.flag, command.version, command.remark, ext]
    )
    return packed


def decode(frame: Frame) -> RemotingCommand:
    """The command in a frame.

    Raises:
        RemoteProtocolError: not an array of six, or a member of a type or size that it cannot have.
    """
    try:
        members = msgpack.unpackb(frame.header, **_LIMITS)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        message = f"header is not msgpack: {error or type(error).__name__}"
        raise RemoteProtocolError(message, reason="header") from error
    if not isinstance(members, list) or len(members) != _MEMBERS:
        message = f"header is not an array of {_MEMBERS}"
        raise RemoteProtocolError(message, reason="header")
    code, opaque, flag, version, remark, ext = members
    if not (remark is None or isinstance(remark, str)):
        message = f"header field remark is a {type(remark).__name__}"
        raise RemoteProtocolError(message, reason="header")
    return RemotingCommand(
        code=_number("code", code),
        opaque=_number("opaque", opaque),
        flag=_number("flag", flag),
        version=_number("version", version),
        language=LanguageCode.OTHER,
        remark=remark,
        ext_fields=None if ext is None else _ext_fields(ext),
        body=frame.body,
        serialize_type=SerializeType.MSGPACK,
    )


def _number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int32(name, value)
    message = f"header field {name} is a {type(value).__name__}"
    raise RemoteProtocolError(message, reason="header")


def _ext_fields(ext: object) -> dict[str, str]:
    if not isinstance(ext, dict):
        message = f"header field ext is a {type(ext).__name__}"
        raise RemoteProtocolError(message, reason="header")
    return check_ext_fields({_text(key): _text(value) for key, value in ext.items() if value is not None})


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    message = f"ext field of type {type(value).__name__}"
    raise RemoteProtocolError(message, reason="ext_fields")
