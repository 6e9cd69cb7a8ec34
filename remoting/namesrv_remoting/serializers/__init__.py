"""The serializers of headers, by serialize type."""

from collections.abc import Callable, Mapping
from typing import Final

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import MAX_FRAME_BYTES, Frame, encode_frame
from namesrv_remoting.serializers import json_header, msgpack_header, rocketmq_header

_ENCODE: Final[Mapping[int, Callable[[RemotingCommand], bytes]]] = {
    SerializeType.JSON: json_header.encode_header,
    SerializeType.ROCKETMQ: rocketmq_header.encode_header,
    SerializeType.MSGPACK: msgpack_header.encode_header,
}
_DECODE: Final[Mapping[int, Callable[[Frame], RemotingCommand]]] = {
    SerializeType.JSON: json_header.decode,
    SerializeType.ROCKETMQ: rocketmq_header.decode,
    SerializeType.MSGPACK: msgpack_header.decode,
}


def encode_command(command: RemotingCommand, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The bytes of a whole frame. Raises LocalProtocolError if it cannot be encoded, or is too large to be received."""
    header = _ENCODE[command.serialize_type](command)
    return encode_frame(command.serialize_type, header, command.body, max_frame_bytes=max_frame_bytes)


def decode_frame(frame: Frame) -> RemotingCommand:
    """The command in a frame. Raises RemoteProtocolError if the header is malformed."""
    return _DECODE[frame.serialize_type](frame)


__all__ = ["decode_frame", "encode_command"]
