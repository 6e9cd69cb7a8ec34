"""Errors of the protocol: the side at fault, and the response code of each error.

A server raises a `ResponseError`; a client raises the same class for the response's code.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, TypeVar

from namesrv_remoting.codes import ResponseCode

_E = TypeVar("_E", bound=Exception)

NOT_READY_REMARK: Final = "name server not ready"
TLS_REQUIRED_REMARK: Final = "plain text received, but this server requires TLS (Java peers: tls.enable=true)"


class RemotingError(Exception):
    """The base of all errors between two peers."""


class LocalProtocolError(RemotingError):
    """Our own side tried to send something that the protocol cannot express."""


class RemoteProtocolError(RemotingError):
    """The peer sent bytes that violate the protocol; `reason` is a short word for logs and counters."""

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class ConnectError(RemotingError):
    """No connection to the peer could be made."""


class ConnectionClosedError(RemotingError):
    """The connection was closed before the response arrived."""


class RequestTimeoutError(RemotingError):
    """No response arrived within the caller's timeout."""


class ResponseError(RemotingError):
    """A refusal that is sent to the peer with its `code` and `remark`.

    `ext_fields` are further fields of the response's header, which RocketMQ sends with some refusals (often `{}`).
    """

    code: ClassVar[int] = ResponseCode.SYSTEM_ERROR

    def __init__(self, remark: str | None, *, ext_fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark or "")
        self.remark = remark
        self.ext_fields = ext_fields


class SystemError_(ResponseError):  # noqa: N801, N818 - the builtin has the name without the underscore
    """Code 1: the request could not be carried out."""


class BadRequestError(SystemError_):
    """Code 1 with a remark that names the field and its value; nothing was changed."""


class NotReadyError(SystemError_):
    """Code 1: the server does not know its brokers yet; try another server."""

    def __init__(self, remark: str | None = NOT_READY_REMARK, *, ext_fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark, ext_fields=ext_fields)


class TlsRequiredError(SystemError_):
    """Code 1: the request arrived in plain text, and the server accepts TLS only."""


class SystemBusyError(ResponseError):
    """Code 2: the server is overloaded; try again later."""

    code = ResponseCode.SYSTEM_BUSY


class RequestCodeNotSupportedError(ResponseError):
    """Code 3: the request code is unknown."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class NoPermissionError(ResponseError):
    """Code 16: the request is not allowed here."""

    code = ResponseCode.NO_PERMISSION


class TopicNotExistError(ResponseError):
    """Code 17: the topic has no route."""

    code = ResponseCode.TOPIC_NOT_EXIST


class QueryNotFoundError(ResponseError):
    """Code 22: the requested object does not exist."""

    code = ResponseCode.QUERY_NOT_FOUND


class GoAwayError(ResponseError):
    """Code 1500: the server is shutting down; use another server."""

    code = ResponseCode.GO_AWAY


# response code -> its class
_BY_CODE: Final[Mapping[int, type[ResponseError]]] = {error.code: error for error in ResponseError.__subclasses__()}


class OtherResponseError(ResponseError):
    """A response code that this library has no class for; `code` is the instance's own."""

    def __init__(self, code: int, remark: str | None, *, ext_fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark, ext_fields=ext_fields)
        self.code = code  # type: ignore[misc]  # the one class whose code differs per instance


def response_error(code: int, remark: str | None, ext_fields: Mapping[str, str] | None = None) -> ResponseError:
    """The exception for a response with this code and remark."""
    if code == ResponseCode.SYSTEM_ERROR and remark == NOT_READY_REMARK:
        return NotReadyError(ext_fields=ext_fields)
    if code == ResponseCode.SYSTEM_ERROR and remark == TLS_REQUIRED_REMARK:
        return TlsRequiredError(remark, ext_fields=ext_fields)
    if code in _BY_CODE:
        return _BY_CODE[code](remark, ext_fields=ext_fields)
    return OtherResponseError(code, remark, ext_fields=ext_fields)


def without_traceback(error: _E) -> _E:
    """Return an error that a variable may keep: without its traceback, cause and context.

    A traceback references stack frames and their variables, with received bytes and the connection. A variable in one
    of these frames would close a reference cycle, which only the garbage collector frees.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
