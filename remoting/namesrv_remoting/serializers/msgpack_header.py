"""Header in msgpack (serialize type 77, the native protocol).

The header is an array [code, opaque, flag, version, remark | nil, ext | nil]; ext maps str to str, int, bool or nil.
Fields that are nil count as missing.
"""

from typing import Annotated, Final

import msgspec

from namesrv_remoting.codes import LanguageCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers.ranges import MAX_EXT_FIELDS, check_ext_fields, int32


class _Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    code: int
    opaque: int
    flag: int
    version: int
    remark: str | None
    # The length of the map is checked before its entries are decoded.
    ext: Annotated[dict[str, str | int | bool | None], msgspec.Meta(max_length=MAX_EXT_FIELDS)] | None


_decoder: Final = msgspec.msgpack.Decoder(_Header)


def encode_header(command: RemotingCommand) -> bytes:
    """The bytes of the header."""
    ext = None if command.ext_fields is None else dict(command.ext_fields)
    return msgspec.msgpack.encode(
        (command.code, command.opaque or 0, command.flag, command.version, command.remark, ext)
    )


def decode(frame: Frame) -> RemotingCommand:
    """The command in a frame. Raises RemoteProtocolError unless the header is an array of six valid members."""
    try:
        header = _decoder.decode(frame.header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"header cannot be read: {error}", reason="header") from error
    ext = header.ext
    return RemotingCommand(
        code=int32("code", header.code),
        opaque=int32("opaque", header.opaque),
        flag=int32("flag", header.flag),
        version=int32("version", header.version),
        language=LanguageCode.OTHER,
        remark=header.remark,
        ext_fields=None
        if ext is None
        else check_ext_fields(
            {
                key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
                for key, value in ext.items()
                if value is not None
            }
        ),
        body=frame.body,
        serialize_type=SerializeType.MSGPACK,
    )
