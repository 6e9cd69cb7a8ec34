"""One message, independent of its encoding."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from namesrv_remoting.codes import CURRENT_VERSION, FLAG_ONEWAY, FLAG_RESPONSE, LanguageCode, SerializeType

ExtFields = Mapping[str, str]


@dataclass(slots=True, frozen=True)
class RemotingCommand:
    """A request or a response.

    `opaque` correlates the two (None: the peer sent none, and the server draws a number of its own).
    `ext_fields` is None when the header carries no such member, which RocketMQ tells apart from `{}`.
    `body` is empty bytes when there is none; the wire knows no difference.
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
        """Whether this answers a request of the receiver's."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer; errors are not answered either."""
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def is_native(self) -> bool:
        """Whether the header is ours (msgpack), and so the body."""
        return self.serialize_type == SerializeType.MSGPACK


def answer_type(serialize_type: int) -> SerializeType:
    """The serialize type of the answer to a question of the given type.

    The question's own, except that a binary (ROCKETMQ) question is answered in JSON, as Apache's server does by
    default: one of the clients in use reads type 1 wrongly.
    """
    return SerializeType.MSGPACK if serialize_type == SerializeType.MSGPACK else SerializeType.JSON
