"""Signed requests, as peers with an account send them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Literal, NamedTuple

from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.signatures import sign_native, sign_rocketmq
from tests.support.namesrv_peer import VERSION, Spelling, request_frame

Recipe = Literal["native", "rocketmq"]
_TYPES = {"json": SerializeType.JSON, "binary": SerializeType.ROCKETMQ, "native": SerializeType.MSGPACK}
_nonces = count(1)


class Key(NamedTuple):
    """An access key with its secret and signature scheme."""

    access_key: str
    secret: str
    recipe: Recipe = "native"
    # milliseconds since 1970 on the signer's clock; FakeClock starts there
    now_ms: int = 1_700_000_000_000

    def request_frame(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        spelling: Spelling = "json",
        opaque: int = 1,
    ) -> bytes:
        """The frame of a signed request."""
        command = RemotingCommand(
            code, opaque=opaque, version=VERSION, ext_fields=ext, body=body, serialize_type=_TYPES[spelling]
        )
        return request_frame(code, self.signed(command).ext_fields, body, spelling=spelling, opaque=opaque)

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """The request with a signature."""
        secret = self.secret.encode()
        if self.recipe == "rocketmq":
            fields = sign_rocketmq(command.ext_fields, command.body, self.access_key, secret)
        else:
            fields = sign_native(command, self.access_key, secret, now_ms=self.now_ms, nonce=f"{next(_nonces)}")
        return replace(command, ext_fields=fields)
