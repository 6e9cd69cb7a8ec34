"""One message, independent of its encoding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from namesrv_remoting.codes import CURRENT_VERSION, FLAG_ONEWAY, FLAG_RESPONSE, LanguageCode, SerializeType

ExtFields = Mapping[str, str]


@dataclass(slots=True, frozen=True)
class RemotingCommand:
    """A request or a response.

    `opaque` matches a response to its request; None if the peer sent no opaque, and the server then makes up a number.
    `ext_fields` is None if the header has no such member, which RocketMQ distinguishes from `{}`.
    `body` is empty without a body; the wire does not distinguish the two.
    """

    code: int
    opaque: int | None = 0
    flag: int = 0
    version: int = CURRENT_VERSION
    language: int = LanguageCode.PYTHON
    remark: str | None = None
    ext_fields: ExtFields | None = None
    body: bytes = field(default=b"", repr=False)
    serialize_type: int = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """True for the response to a request of the receiver."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the sender expects no response, not even an error."""
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def is_native(self) -> bool:
        """True if header and body are in the native protocol (msgpack)."""
        return self.serialize_type == SerializeType.MSGPACK


def response_type(serialize_type: int) -> SerializeType:
    """The serialize type of the response to a request of the given type.

    The type is that of the request, except that the response to a binary (ROCKETMQ) request is JSON, as Apache's server
    does by default: one of the clients in use reads type 1 wrongly.
    """
    return SerializeType.MSGPACK if serialize_type == SerializeType.MSGPACK else SerializeType.JSON
