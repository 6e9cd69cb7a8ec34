"""Every response code becomes its class, and every class its code."""

import pytest

from namesrv_remoting import errors
from namesrv_remoting.errors import (
    BadRequestError,
    NotReadyError,
    OtherResponseError,
    RemoteProtocolError,
    RemotingError,
    ResponseError,
    SystemError_,
    TopicNotExistError,
    response_error,
)

OF_CODES = {1: "SystemError_", 2: "SystemBusyError", 3: "RequestCodeNotSupportedError", 16: "NoPermissionError"}
OF_CODES |= {17: "TopicNotExistError", 22: "QueryNotFoundError", 1500: "GoAwayError"}


@pytest.mark.parametrize(
    ("code", "remark", "error"),
    [
        *((code, "remark", getattr(errors, name)) for code, name in OF_CODES.items()),
        # of a newer server: still told
        *((code, "remark", OtherResponseError) for code in (-1, 4, 4711)),
        # RocketMQ has no code for it: code 1 with this remark, to the letter, and nothing else
        (1, "name server not ready", NotReadyError),
        (1, "name server not ready yet", SystemError_),
        (17, "name server not ready", TopicNotExistError),
    ],
)
def test_code_becomes_its_class(code: int, remark: str, error: type[ResponseError]) -> None:
    """What a client raises is what the server raised, with its remark and its ext fields."""
    raised = response_error(code, remark, {"value": "v"})

    assert error is type(raised)
    assert (code, remark, {"value": "v"}, remark) == (raised.code, raised.remark, raised.ext_fields, str(raised))
    assert error.code == (1 if error is OtherResponseError else code)


def test_errors_say_what_they_are() -> None:
    """A bad request is code 1 to the peer; no remark is told from an empty one; a word is for counters."""
    assert (BadRequestError("").code, BadRequestError("field topic is missing").remark) == (1, "field topic is missing")
    assert (NotReadyError().code, NotReadyError().remark) == (1, "name server not ready")
    assert (SystemError_(None).remark, str(SystemError_(None)), SystemError_(None).ext_fields) == (None, "", None)
    assert RemoteProtocolError("x").reason == "malformed"
    assert RemoteProtocolError("x", reason="header").reason == "header"


def test_everything_is_a_remoting_error() -> None:
    """One except clause is enough for a caller who does not care which."""
    classes = [it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, Exception)]

    assert len(classes) == 17
    assert all(issubclass(it, RemotingError) for it in classes)
