"""Every request gets its answer, whatever its handler does."""

import asyncio
from typing import Any

import pytest

from namesrv.net.dispatcher import Dispatcher, Reply, Request
from namesrv.net.protocol import Answer, ServerConnection
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    BadRequestError,
    GoAwayError,
    NotReadyError,
    OtherResponseError,
    QueryNotFoundError,
    SystemError_,
    TopicNotExistError,
)
from tests.support import spelling
from tests.support.fake_clock import FakeClock
from tests.support.serving import RecordingListener, server_of
from tests.support.spelling import JSON, NATIVE

KNOWN = 105
ANSWER = {"code": 0, "flag": 1, "language": "PYTHON", "opaque": 7, "serializeTypeCurrentRPC": "JSON", "version": 479}
NATIVE_ANSWER = {"code": 0, "opaque": 7, "flag": 1, "version": 479, "remark": None, "extFields": {"boot_id": "b00t"}}


def dispatcher_of(outcome: Reply | BaseException, **options: Any) -> Dispatcher:
    """One that knows one request, and what comes of it."""

    async def handle(request: Request) -> Reply:
        if isinstance(outcome, Reply):
            return outcome
        raise outcome

    return Dispatcher({KNOWN: handle}, native_ext={"boot_id": "b00t"}, **options)


async def answer_to(dispatcher: Dispatcher, *, unread: str = "", **question: Any) -> Answer:
    """What is sent to a peer that asks."""
    connection = ServerConnection(server_of(dispatcher, RecordingListener(), FakeClock(), asyncio.TaskGroup()), 1)
    command = RemotingCommand(**{"code": KNOWN, "opaque": 7, **question})
    return await dispatcher.answer(Request(command, connection, unread=unread))


def only(response: Answer) -> spelling.Answer:
    """The one frame of an answer."""
    [found], rest = spelling.read_answers(response.data)
    assert rest == b""
    return found


@pytest.mark.parametrize(
    ("outcome", "question", "said"),
    [
        (Reply(b"route"), {}, {}),
        # no ext fields at all differ from no such member
        (Reply(b"route", {}), {}, {"extFields": {}}),
        (Reply(b"route", {"value": "1"}, "so"), {}, {"extFields": {"value": "1"}, "remark": "so"}),
        (Reply(b"route"), {"opaque": 0}, {"opaque": 0}),
        (Reply(b"route"), {"opaque": -(2**31)}, {"opaque": -(2**31)}),
        (Reply(b"route"), {"opaque": 2**31 - 1, "serialize_type": NATIVE}, {"opaque": 2**31 - 1}),
        # Java's server answers binary questions in JSON, and its remark begins with a blank
        (Reply(b"route"), {"serialize_type": 1}, {}),
        (Reply(), {"code": 99999}, {"code": 3, "remark": " request type 99999 not supported"}),
        # what this run of the server is goes with every native answer, refusals too
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
async def test_answer(
    outcome: Reply | Exception, question: dict[str, Any], said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The question's opaque and spelling, the reply or the error's code and remark; nothing goes to the log.

    The same request without an answer is counted, and not answered.
    """
    is_native = question.get("serialize_type") == NATIVE
    body = b"route" if isinstance(outcome, Reply) and "code" not in said else b""
    expected = spelling.Answer(NATIVE, NATIVE_ANSWER | said, body) if is_native else (JSON, ANSWER | said, body)
    dispatcher = dispatcher_of(outcome)

    assert expected == only(await answer_to(dispatcher, **question))
    assert (await answer_to(dispatcher, flag=2, **question)).data == b""
    # unknown codes are counted together, so that no peer can grow the table
    code = -1 if "code" in question else KNOWN
    assert {(code, said.get("code", 0)): 2} == dispatcher.answered
    assert caplog.records == []


async def test_question_without_an_opaque_gets_the_servers_own_number() -> None:
    """As in Java: the server's request counter, another number each time, a positive 32-bit one for ever."""
    dispatcher = dispatcher_of(Reply())

    assert [only(await answer_to(dispatcher, opaque=None)).opaque for _ in range(3)] == [1, 2, 3]
    dispatcher._last_opaque = 2**31 - 2
    assert [only(await answer_to(dispatcher, opaque=None)).opaque for _ in range(2)] == [2**31 - 1, 1]


async def test_answer_larger_than_the_limit_says_so() -> None:
    """A peer would close its connection on such a frame; it gets code 1 with both sizes instead."""
    response = only(await answer_to(dispatcher_of(Reply(bytes(4096)), max_frame_bytes=lambda: 4096)))

    assert (response.code, response.opaque, response.body, response.remark) == (
        1,
        7,
        b"",
        "frame of 4201 bytes, limit 4096",
    )


async def test_request_without_its_body_is_not_carried_out() -> None:
    """There was no memory for it, or it was to be refused when its header came: it has to be asked again."""
    response = only(await answer_to(dispatcher_of(Reply(b"route")), unread="no memory"))

    assert (response.code, response.remark, response.body) == (2, "no memory; try again later", b"")


async def test_cancelled_handler_is_not_answered() -> None:
    """Who cancels a request means it: no answer is made up."""
    dispatcher = dispatcher_of(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await answer_to(dispatcher)
    assert dispatcher.answered == {}


async def test_answers_are_timed() -> None:
    """Every answer, also one that is an error; unknown codes are told under one number."""
    timed: list[tuple[int, float]] = []
    dispatcher = dispatcher_of(TopicNotExistError("no"), timed=lambda code, seconds: timed.append((code, seconds)))
    for code in (KNOWN, 4711):
        await answer_to(dispatcher, code=code)

    assert [code for code, seconds in timed if seconds > 0] == [KNOWN, -1]
