"""Serializers by serialize type."""

from collections.abc import Mapping
from typing import Final, Protocol

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import MAX_FRAME_BYTES, Frame, encode_frame
from namesrv_remoting.serializers import json_header, msgpack_header, rocketmq_header


class Serializer(Protocol):
    """One way to spell a header."""

    def encode_header(self, command: RemotingCommand) -> bytes:
        """The header's bytes. Raises LocalProtocolError for what this spelling cannot carry."""
        ...

    def decode(self, frame: Frame) -> RemotingCommand:
        """The command in a frame. Raises RemoteProtocolError."""
        ...


SERIALIZERS: Final[Mapping[int, Serializer]] = {
    SerializeType.JSON: json_header,
    SerializeType.ROCKETMQ: rocketmq_header,
    SerializeType.MSGPACK: msgpack_header,
}


def encode_command(command: RemotingCommand, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """The bytes of a whole frame.

    Raises:
        LocalProtocolError: it cannot be spelt, or is larger than the receiver accepts.
    """
    header = SERIALIZERS[command.serialize_type].encode_header(command)
    return encode_frame(command.serialize_type, header, command.body, max_frame_bytes=max_frame_bytes)


def decode_frame(frame: Frame) -> RemotingCommand:
    """The command in a frame that was cut from the stream.

    Raises:
        RemoteProtocolError: the header is not one.
    """
    try:
        return SERIALIZERS[frame.serialize_type].decode(frame)
    except RecursionError as error:
        message = "header nested too deeply"
        raise RemoteProtocolError(message, reason="header") from error


__all__ = ["SERIALIZERS", "Serializer", "decode_frame", "encode_command"]
