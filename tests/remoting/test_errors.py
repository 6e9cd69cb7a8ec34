"""Response codes and their error classes."""

import pytest

from namesrv_remoting import errors
from namesrv_remoting.errors import (
    BadRequestError,
    NotReadyError,
    OtherResponseError,
    RemoteProtocolError,
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
        # an unknown code of a newer server
        *((code, "remark", OtherResponseError) for code in (-1, 4, 4711)),
        # an empty remark differs from none
        (1, "", SystemError_),
        (1, None, SystemError_),
        # RocketMQ has no code for it: code 1 with exactly this remark
        (1, "name server not ready", NotReadyError),
        (1, "name server not ready yet", SystemError_),
        (17, "name server not ready", TopicNotExistError),
    ],
)
def test_code_becomes_its_class(code: int, remark: str | None, error: type[ResponseError]) -> None:
    """A client raises the class that the server raised, with remark and ext fields."""
    raised = response_error(code, remark, {"value": "v"})

    assert error is type(raised)
    assert (raised.code, raised.remark, raised.ext_fields, str(raised)) == (code, remark, {"value": "v"}, remark or "")
    assert error.code == (1 if error is OtherResponseError else code)


def test_errors_of_the_server_have_code_remark_and_reason() -> None:
    """A bad request is code 1 to the peer; counters use the reason."""
    assert (BadRequestError("").code, NotReadyError().code, NotReadyError().remark) == (1, 1, "name server not ready")
    assert RemoteProtocolError("x").reason == "malformed"
