"""Every response code becomes its class, and every class its code."""

import pytest

from namesrv_remoting import errors
from namesrv_remoting.errors import (
    BadRequestError,
    GoAwayError,
    NoPermissionError,
    NotReadyError,
    OtherResponseError,
    QueryNotFoundError,
    RemoteProtocolError,
    RemotingError,
    RequestCodeNotSupportedError,
    ResponseError,
    SystemBusyError,
    SystemError_,
    TopicNotExistError,
    response_error,
)

CODES = [
    (1, SystemError_),
    (2, SystemBusyError),
    (3, RequestCodeNotSupportedError),
    (16, NoPermissionError),
    (17, TopicNotExistError),
    (22, QueryNotFoundError),
    (1500, GoAwayError),
]


@pytest.mark.parametrize(("code", "error"), CODES)
def test_class_carries_its_code(code: int, error: type[ResponseError]) -> None:
    """What a server raises is what the peer reads."""
    assert code == error("remark").code


@pytest.mark.parametrize(("code", "error"), CODES)
def test_code_becomes_its_class(code: int, error: type[ResponseError]) -> None:
    """What a client raises is what the server raised, with its remark and its ext fields."""
    raised = response_error(code, "remark", {"value": "v"})

    assert error is type(raised)
    assert (code, "remark", {"value": "v"}, "remark") == (raised.code, raised.remark, raised.ext_fields, str(raised))


def test_not_ready_is_told_by_its_remark() -> None:
    """RocketMQ has no code for it: code 1 with this remark, to the letter, and nothing else."""
    assert NotReadyError is type(response_error(1, "name server not ready"))
    assert SystemError_ is type(response_error(1, "name server not ready yet"))
    assert TopicNotExistError is type(response_error(17, "name server not ready"))
    assert (1, "name server not ready") == (NotReadyError().code, NotReadyError().remark)
    assert {"boot_id": "b"} == response_error(1, "name server not ready", {"boot_id": "b"}).ext_fields


def test_bad_request_is_a_system_error_to_the_peer() -> None:
    """Code 1, and the remark names the field."""
    assert (1, "field topic is missing") == (
        BadRequestError("x").code,
        BadRequestError("field topic is missing").remark,
    )


@pytest.mark.parametrize("code", [-1, 4, 4711])
def test_unknown_code_keeps_itself(code: int) -> None:
    """A code of a newer server is still told, and the class's own is left alone."""
    raised = response_error(code, None, {"a": "b"})

    assert OtherResponseError is type(raised)
    assert (code, None, "", {"a": "b"}) == (raised.code, raised.remark, str(raised), raised.ext_fields)
    assert OtherResponseError.code == 1


def test_refusal_without_a_remark_has_an_empty_text() -> None:
    """The wire tells no remark from an empty one; `remark` does."""
    assert (None, "", None) == (
        SystemError_(None).remark,
        str(SystemError_(None)),
        SystemError_(None).ext_fields,
    )


def test_everything_is_a_remoting_error() -> None:
    """One except clause is enough for a caller who does not care which."""
    classes = [it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, Exception)]

    assert len(classes) == 17
    assert all(issubclass(it, RemotingError) for it in classes)


def test_protocol_error_has_a_word_for_counters() -> None:
    """Malformed, unless whoever raises it knows better."""
    assert RemoteProtocolError("x").reason == "malformed"
    assert RemoteProtocolError("x", reason="header").reason == "header"
