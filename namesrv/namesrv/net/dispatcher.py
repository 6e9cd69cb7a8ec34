"""Dispatch of requests to handlers, and of their failures to answers.

The one place with a catch-all: a handler's bug becomes an answer with code 1 and a traceback in the log, never a lost
connection.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from namesrv.net.protocol import Answer, Request
from namesrv_remoting.codes import FLAG_RESPONSE, RequestCode, ResponseCode
from namesrv_remoting.command import RemotingCommand, answer_type
from namesrv_remoting.errors import (
    LocalProtocolError,
    NotReadyError,
    RequestCodeNotSupportedError,
    ResponseError,
    SystemBusyError,
    SystemError_,
)
from namesrv_remoting.frames import MAX_FRAME_BYTES
from namesrv_remoting.serializers import encode_command

logger: Final = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Reply:
    """What a handler returns: a body, ext fields (None: no such member), rarely a remark."""

    body: bytes = b""
    ext_fields: Mapping[str, str] | None = None
    remark: str | None = None


Handler = Callable[[Request], Awaitable[Reply]]
SUCCESS: Final = Reply()


def admit_all(request: Request) -> bool:  # noqa: ARG001 - whatever it is
    """Whether a server without a guard lets a request in."""
    return True


@dataclass(slots=True, eq=False, repr=False)
class Dispatcher:
    """A table of handlers, and the answers to everything that no handler answers.

    `native_ext` goes with every native answer (DESIGN 3: the server's boot id). Handlers in `concurrent` may take long
    without holding up the requests behind them on the same connection; all others run in the order they came.
    """

    handlers: Mapping[int, Handler]
    _: KW_ONLY
    concurrent: frozenset[int] = frozenset()
    native_ext: Mapping[str, str] = field(default_factory=dict)
    # lets a request pass, with what it found out about it, or raises a ResponseError; comes before everything else
    guard: Callable[[Request], Awaitable[Request]] | None = None
    # whether it will let a request in, as far as the header says; None: that depends on the body
    is_admitted: Callable[[Request], bool | None] = admit_all
    # told of a request that was not received whole, is not refused for its header, and cannot be carried out
    on_unread: Callable[[Request], None] = lambda request: None  # noqa: ARG005 - of no interest
    # how large an answer may be by now
    max_frame_bytes: Callable[[], int] = lambda: MAX_FRAME_BYTES
    # told of every answer: the code that `answered` counts it under, and how many seconds the handler took
    timed: Callable[[int, float], None] = lambda code, seconds: None  # noqa: ARG005 - of no interest
    # answers by (request code, response code), for metrics
    answered: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    _last_opaque: int = field(default=0, init=False)

    def next_code(self, code: int) -> int:
        """The code under which a request is counted: unknown ones together, so that no peer can grow the table."""
        return code if code in self.handlers else -1

    async def answer(self, request: Request) -> Answer:
        """Run the handler and encode what comes of it."""
        command = request.command
        code: int = ResponseCode.SUCCESS
        closes = False
        began = time.monotonic()
        try:
            # what is signed can be verified only with its body
            is_unverified = request.unread and self.is_admitted(request) is None
            if self.guard is not None and not is_unverified:
                request = await self.guard(request)
            if request.unread:
                self.on_unread(request)
                raise SystemBusyError(f"{request.unread}; try again later")
            handler = self.handlers.get(command.code)
            if handler is None:
                # the leading blank is Java's
                raise RequestCodeNotSupportedError(f" request type {command.code} not supported")
            reply = await handler(request)
            if command.code == RequestCode.REGISTER_BROKER:
                request.connection.confirm_broker()
        except ResponseError as error:
            code, reply = error.code, Reply(ext_fields=error.ext_fields, remark=error.remark)
            closes = isinstance(error, NotReadyError) and not request.connection.peer.is_broker
        except Exception as error:
            logger.exception("request %s from %s failed", command.code, request.connection.peer.address)
            code = ResponseCode.SYSTEM_ERROR
            reply = Reply(remark=f"internal error: {type(error).__name__}; see the server's log")
        key = (self.next_code(command.code), code)
        self.answered[key] = self.answered.get(key, 0) + 1
        self.timed(key[0], time.monotonic() - began)
        if command.is_oneway:
            return Answer(b"", closes)
        return Answer(self._encode(command, code, reply), closes)

    def busy(self, request: Request, remark: str) -> bytes:
        """The answer in the place of one that there is no room for."""
        if request.command.is_oneway:
            return b""
        return self._encode(request.command, SystemBusyError.code, Reply(remark=remark))

    def _encode(self, command: RemotingCommand, code: int, reply: Reply) -> bytes:
        answer = self._command(command, code, reply)
        try:
            return encode_command(answer, max_frame_bytes=self.max_frame_bytes())
        except LocalProtocolError as error:
            # an answer larger than the peer would read: say so instead of closing its connection
            return encode_command(self._command(command, SystemError_.code, Reply(remark=str(error))))

    def _draw_opaque(self) -> int:
        # Java's request counter, for answers to questions without an opaque
        self._last_opaque = self._last_opaque % 0x7FFFFFFF + 1
        return self._last_opaque

    def _command(self, command: RemotingCommand, code: int, reply: Reply) -> RemotingCommand:
        ext_fields = reply.ext_fields
        if command.is_native:
            ext_fields = {**self.native_ext, **(ext_fields or {})}
        return RemotingCommand(
            code=code,
            opaque=self._draw_opaque() if command.opaque is None else command.opaque,
            flag=FLAG_RESPONSE,
            remark=reply.remark,
            ext_fields=ext_fields,
            body=reply.body,
            serialize_type=answer_type(command.serialize_type),
        )


__all__ = ["SUCCESS", "Answer", "Dispatcher", "Handler", "Reply", "Request", "admit_all"]
