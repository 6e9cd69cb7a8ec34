"""Dispatcher: calls the handler of each request, and turns exceptions of handlers into error responses.

Only this module turns every exception into a response: a bug in a handler becomes a response with code 1 and a
traceback in the log, and never a lost connection.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from namesrv.net.fairness.budget import LARGE_BYTES
from namesrv.net.header_checks import HeaderVerdict
from namesrv.net.request import ReceiveRules, Request, Response
from namesrv_remoting.codes import FLAG_RESPONSE, ResponseCode
from namesrv_remoting.command import RemotingCommand, response_type
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
    """The result of a handler: a body, ext fields (None: the response has no such member), rarely a remark."""

    body: bytes = b""
    ext_fields: Mapping[str, str] | None = None
    remark: str | None = None


Handler = Callable[[Request], Awaitable[Reply]]
SUCCESS: Final = Reply()
# A handler returns this object, which is compared by identity, after `ServerConnection.hold`: the response comes later.
HELD: Final = Reply(remark="held")


class Admission(Protocol):
    """The access rules and quotas of a server."""

    def admit(self, request: Request) -> Awaitable[Request]:
        """The request with the account and other facts about the peer. Raises ResponseError for a refused request."""
        ...

    def judge_header(self, request: Request) -> HeaderVerdict:
        """Judge a request by its header alone."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Dispatcher:
    """Answers each request by the handler of its code, and all other requests by an error response.

    `native_ext` is added to every native response (the server's boot id).
    """

    handlers: Mapping[int, Handler]
    _: KW_ONLY
    # request code -> rules for receiving these requests; ORDINARY for all other codes
    receive_rules: Mapping[int, ReceiveRules] = field(default_factory=dict)
    native_ext: Mapping[str, str] = field(default_factory=dict)
    # admits or refuses each request before its handler is called; None: all are admitted
    admission: Admission | None = None
    # called with a request that cannot be carried out, since its body was not received; the admission allowed the
    # header, or could not decide without the body
    on_unread: Callable[[Request], None] = lambda request: None  # noqa: ARG005 - ignored by default
    # the limit for the size of a response frame
    max_frame_bytes: int = MAX_FRAME_BYTES
    # called for every answered request, one-way or not, with its code (-1 for an unknown code, as in `answered`), and
    # the seconds from the admission to the encoded response, which include the wait for a quota; for a request that was
    # held, the seconds since it was held
    timed: Callable[[int, float], None] = lambda code, seconds: None  # noqa: ARG005 - ignored by default
    # (request code, response code) -> number of answered requests, one-way requests included, for metrics
    answered: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    _last_opaque: int = field(default=0, init=False)

    async def answer(self, request: Request) -> Response:
        """Run admission and handler, and encode the response or the error; a held request has no response yet."""
        return await self.encode_reply(request, self._handle(request), time.monotonic())

    async def encode_reply(self, request: Request, pending: Awaitable[Reply], began: float) -> Response:
        """Await the reply of a handler, and encode the response with it, or with the error that the handler raised.

        `began` is the monotonic time at which the dispatcher got the request, or at which a held request was held.
        """
        command = request.command
        code: int = ResponseCode.SUCCESS
        closes = False
        try:
            reply = await pending
            if reply is HELD:
                return Response(b"")
        except ResponseError as error:
            code, reply = error.code, Reply(ext_fields=error.ext_fields, remark=error.remark)
            closes = isinstance(error, NotReadyError) and not request.connection.peer.is_broker
        except Exception as error:
            logger.exception("request %s from %s failed", command.code, request.connection.peer.address)
            code = ResponseCode.SYSTEM_ERROR
            reply = Reply(remark=f"internal error: {type(error).__name__}; see the server's log")
        data, reserved = b"", 0
        if not command.is_oneway:
            code, data = self._encode(command, code, reply)
            if len(data) > LARGE_BYTES:
                code, data, reserved = self._reserve_memory(request, code, data)
        self.note_answered(command.code, code, began)
        return Response(data, closes, reserved)

    def judge_header(self, request: Request) -> HeaderVerdict:
        """Judge a request by its header alone."""
        return HeaderVerdict.ALLOWED if self.admission is None else self.admission.judge_header(request)

    def note_answered(self, request_code: int, code: int, began: float) -> None:
        """Count a request by its code and the code of its response, and its time since `began` (`time.monotonic`)."""
        # All unknown codes are counted as -1, so that peers cannot grow the table.
        counted = request_code if request_code in self.handlers else -1
        self.answered[counted, code] = self.answered.get((counted, code), 0) + 1
        self.timed(counted, time.monotonic() - began)

    async def _handle(self, request: Request) -> Reply:
        """The reply of the handler, if the request is admitted and its body was received."""
        code = request.command.code
        # The signature of a request covers the body, so it cannot be verified without the body.
        is_unverified = request.unread_reason and self.judge_header(request) is HeaderVerdict.UNDECIDED
        if self.admission is not None and not is_unverified:
            request = await self.admission.admit(request)
        if request.unread_reason:
            self.on_unread(request)
            raise SystemBusyError(f"{request.unread_reason}; try again later")
        handler = self.handlers.get(code)
        if handler is None:
            # The remark begins with a blank, as Java's does.
            raise RequestCodeNotSupportedError(f" request type {code} not supported")
        return await handler(request)

    def _encode(self, command: RemotingCommand, code: int, reply: Reply) -> tuple[int, bytes]:
        """The response code and the encoded response."""
        response = self._command(command, code, reply)
        try:
            return code, encode_command(response, max_frame_bytes=self.max_frame_bytes)
        except LocalProtocolError as error:
            # The response is larger than the peer would read: an error response keeps the connection open.
            too_large = Reply(remark=str(error))
            return SystemError_.code, encode_command(self._command(command, SystemError_.code, too_large))

    def _reserve_memory(self, request: Request, code: int, data: bytes) -> tuple[int, bytes, int]:
        """Reserve memory for a large response; without enough memory, a SYSTEM_BUSY response takes its place."""
        if request.connection.reserve_memory(len(data)):
            return code, data, len(data)
        no_memory = Reply(remark=f"no memory for a response of {len(data)} bytes")
        return *self._encode(request.command, SystemBusyError.code, no_memory), 0

    def _draw_opaque(self) -> int:
        # Responses to requests without an opaque are numbered, as by Java's request counter.
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
            serialize_type=response_type(command.serialize_type),
        )
