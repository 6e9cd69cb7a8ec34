"""The dispatcher answers every request, with any outcome of its handler."""

import asyncio
from typing import Any

import pytest

from namesrv.net.dispatcher import Dispatcher, Reply
from namesrv.net.protocol import ServerConnection
from namesrv.net.request import Request, Response
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    BadRequestError,
    GoAwayError,
    NotReadyError,
    OtherResponseError,
    QueryNotFoundError,
    SystemError_,
)
from tests.support import spelling
from tests.support.fake_clock import FakeClock
from tests.support.serving import RecordingObserver, server_of
from tests.support.spelling import JSON, NATIVE

KNOWN = 105
ANSWER = {"code": 0, "flag": 1, "language": "PYTHON", "opaque": 7, "serializeTypeCurrentRPC": "JSON", "version": 479}
NATIVE_ANSWER = {"code": 0, "opaque": 7, "flag": 1, "version": 479, "remark": None, "extFields": {"boot_id": "b00t"}}


def dispatcher_of(outcome: Reply | BaseException, **options: Any) -> Dispatcher:
    """A dispatcher of one request code whose handler has this outcome."""

    async def handle(request: Request) -> Reply:
        if isinstance(outcome, Reply):
            return outcome
        raise outcome

    return Dispatcher({KNOWN: handle}, native_ext={"boot_id": "b00t"}, **options)


async def response_to(dispatcher: Dispatcher, *, unread_reason: str = "", **request: Any) -> Response:
    """The response to a request with these fields."""
    connection = ServerConnection(server_of(dispatcher, RecordingObserver(), FakeClock(), asyncio.TaskGroup()), 1)
    command = RemotingCommand(**{"code": KNOWN, "opaque": 7, **request})
    return await dispatcher.answer(Request(command, connection, unread_reason=unread_reason))


def frame_of(response: Response) -> spelling.Response:
    """The single frame of a response."""
    [found], rest = spelling.read_responses(response.data)
    assert rest == b""
    return found


@pytest.mark.parametrize(
    ("outcome", "sent", "fields"),
    [
        (Reply(b"route"), {}, {}),
        # empty ext fields differ from absent ones
        (Reply(b"route", {}), {}, {"extFields": {}}),
        (Reply(b"route", {"value": "1"}, "so"), {}, {"extFields": {"value": "1"}, "remark": "so"}),
        (Reply(b"route"), {"opaque": 0}, {"opaque": 0}),
        (Reply(b"route"), {"opaque": -(2**31)}, {"opaque": -(2**31)}),
        (Reply(b"route"), {"opaque": 2**31 - 1, "serialize_type": NATIVE}, {"opaque": 2**31 - 1}),
        # Java's server answers binary requests in JSON, and its remark begins with a blank
        (Reply(b"route"), {"serialize_type": 1}, {}),
        (Reply(), {"code": 99999}, {"code": 3, "remark": " request type 99999 not supported"}),
        # every native response has the boot id, refusals included
        (Reply(b"route"), {"serialize_type": NATIVE}, {}),
        (
            Reply(b"route", {"changed": "true"}),
            {"serialize_type": NATIVE},
            {"extFields": {"boot_id": "b00t", "changed": "true"}},
        ),
        (QueryNotFoundError("gone"), {"serialize_type": NATIVE}, {"code": 22, "remark": "gone"}),
        (SystemError_("crc32 not match", ext_fields={}), {}, {"code": 1, "remark": "crc32 not match", "extFields": {}}),
        (BadRequestError("field topic is missing"), {}, {"code": 1, "remark": "field topic is missing"}),
        (NotReadyError(), {}, {"code": 1, "remark": "name server not ready"}),
        (QueryNotFoundError(None), {}, {"code": 22}),
        (GoAwayError("please go away"), {}, {"code": 1500, "remark": "please go away"}),
        (OtherResponseError(4711, "odd"), {}, {"code": 4711, "remark": "odd"}),
    ],
)
async def test_response(
    outcome: Reply | Exception,
    sent: dict[str, Any],
    fields: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A response has the request's opaque and serialization, and the reply or the error; the log stays empty.

    The same request one-way is counted and gets no response.
    """
    is_native = sent.get("serialize_type") == NATIVE
    body = b"route" if isinstance(outcome, Reply) and "code" not in fields else b""
    expected = spelling.Response(NATIVE, NATIVE_ANSWER | fields, body) if is_native else (JSON, ANSWER | fields, body)
    dispatcher = dispatcher_of(outcome)

    assert frame_of(await response_to(dispatcher, **sent)) == expected
    assert (await response_to(dispatcher, flag=2, **sent)).data == b""
    # unknown codes are counted together, so that a peer cannot grow the table
    code = -1 if "code" in sent else KNOWN
    assert dispatcher.answered == {(code, fields.get("code", 0)): 2}
    assert caplog.records == []


async def test_request_without_an_opaque_gets_a_server_number() -> None:
    """As in Java, the opaque is the server's request counter, which grows and stays a positive 32-bit number."""
    dispatcher = dispatcher_of(Reply())

    assert [frame_of(await response_to(dispatcher, opaque=None)).opaque for _ in range(3)] == [1, 2, 3]
    dispatcher._last_opaque = 2**31 - 2
    assert [frame_of(await response_to(dispatcher, opaque=None)).opaque for _ in range(2)] == [2**31 - 1, 1]


async def test_response_beyond_the_frame_limit_becomes_an_error() -> None:
    """A peer would close its connection on a larger frame; it gets code 1 with size and limit instead."""
    dispatcher = dispatcher_of(Reply(bytes(4096)), max_frame_bytes=4096)
    response = frame_of(await response_to(dispatcher))

    assert (response.code, response.opaque, response.body, response.remark) == (
        1,
        7,
        b"",
        "frame of 4201 bytes, limit 4096",
    )
    assert dispatcher.answered == {(KNOWN, 1): 1}


async def test_cancelled_handler_sends_no_response() -> None:
    """A cancelled request is neither answered nor counted."""
    dispatcher = dispatcher_of(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await response_to(dispatcher)
    assert dispatcher.answered == {}
