"""Every request gets its answer, whatever its handler does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from namesrv_remoting.aio.connection import Answer, ServerConnection
from namesrv_remoting.aio.dispatch import Dispatcher, Handler, Reply, Request
from namesrv_remoting.aio.server import RemotingServer
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    BadRequestError,
    GoAwayError,
    NoPermissionError,
    NotReadyError,
    OtherResponseError,
    QueryNotFoundError,
    ResponseError,
    SystemBusyError,
    SystemError_,
    TopicNotExistError,
)
from tests.support import spelling
from tests.support.fake_clock import FakeClock
from tests.support.serving import Heard

KNOWN = 105


def connection_to(dispatcher: Dispatcher) -> ServerConnection:
    """A connection that nobody has made yet."""
    return ServerConnection(RemotingServer(dispatcher, Heard(), clock=FakeClock(), tasks=asyncio.TaskGroup()), 1)


def dispatcher_of(handle: Handler, *, max_frame_bytes: int = 1 << 20) -> Dispatcher:
    """One that knows one request."""
    return Dispatcher({KNOWN: handle}, native_ext={"boot_id": "b00t"}, max_frame_bytes=max_frame_bytes)


def replies(reply: Reply) -> Handler:
    """A handler that returns a reply."""

    async def handle(request: Request) -> Reply:
        return reply

    return handle


def raises(error: BaseException) -> Handler:
    """A handler that raises an error."""

    async def handle(request: Request) -> Reply:
        raise error

    return handle


def only(answer: Answer) -> spelling.Answer:
    """The one frame of an answer."""
    [found], rest = spelling.read_answers(answer.data)
    assert rest == b""
    return found


async def ask(handle: Handler, command: RemotingCommand) -> spelling.Answer:
    """What comes of a command."""
    dispatcher = dispatcher_of(handle)
    return only(await dispatcher.answer(Request(command, connection_to(dispatcher))))


# -- how answers are spelt --------------------------------------------------------------------------------------------


async def test_reply_becomes_a_json_answer() -> None:
    """Code 0, the response flag, the question's opaque, our language and version; no remark, no ext fields."""
    answer = await ask(replies(Reply(b"route")), RemotingCommand(KNOWN, opaque=7))

    expected = {
        "code": 0,
        "flag": 1,
        "language": "PYTHON",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    assert spelling.Answer(spelling.JSON, expected, b"route") == answer


async def test_ext_fields_and_remark_are_sent() -> None:
    """A reply's ext fields and remark travel; none at all differs from no such member."""
    answer = await ask(replies(Reply(ext_fields={"value": "1"}, remark="so")), RemotingCommand(KNOWN))
    assert ({"value": "1"}, "so") == (answer.ext_fields, answer.remark)

    assert {} == (await ask(replies(Reply(ext_fields={})), RemotingCommand(KNOWN))).ext_fields


async def test_binary_question_is_answered_in_json() -> None:
    """Type 1 is answered with type 0, as Apache's server does."""
    answer = await ask(replies(Reply()), RemotingCommand(KNOWN, opaque=7, serialize_type=1))

    assert (spelling.JSON, 7) == (answer.serialize_type, answer.opaque)


async def test_native_question_is_answered_natively_with_the_boot_id() -> None:
    """Type 77 is answered with type 77; its ext fields say which run of the server this is, besides the reply's own."""
    question = RemotingCommand(KNOWN, opaque=7, serialize_type=77)

    answer = await ask(replies(Reply(b"route")), question)
    members = {"code": 0, "opaque": 7, "flag": 1, "version": 479, "remark": None, "extFields": {"boot_id": "b00t"}}
    assert spelling.Answer(spelling.NATIVE, members, b"route") == answer

    answer = await ask(replies(Reply(ext_fields={"changed": "true"})), question)
    assert {"boot_id": "b00t", "changed": "true"} == answer.ext_fields


async def test_native_refusal_carries_the_boot_id() -> None:
    """Whoever is refused learns about a restart as well."""
    answer = await ask(raises(QueryNotFoundError("gone")), RemotingCommand(KNOWN, serialize_type=77))

    assert (22, "gone", {"boot_id": "b00t"}) == (answer.code, answer.remark, answer.ext_fields)


@pytest.mark.parametrize("opaque", [0, -1, 2**31 - 1, -(2**31)])
async def test_opaque_is_echoed(opaque: int) -> None:
    """Any 32-bit number comes back, 0 and negative ones too, in both spellings."""
    for serialize_type in (0, 77):
        command = RemotingCommand(KNOWN, opaque=opaque, serialize_type=serialize_type)
        assert opaque == (await ask(replies(Reply()), command)).opaque


async def test_question_without_an_opaque_gets_the_servers_own_number() -> None:
    """As in Java: the server's request counter, another number each time, a positive 32-bit one for ever."""
    dispatcher = dispatcher_of(replies(Reply()))
    connection = connection_to(dispatcher)

    async def number() -> int | None:
        return only(await dispatcher.answer(Request(RemotingCommand(KNOWN, opaque=None), connection))).opaque

    assert [1, 2, 3] == [await number() for _ in range(3)]
    dispatcher._last_opaque = 2**31 - 2
    assert [2**31 - 1, 1] == [await number() for _ in range(2)]


async def test_answer_larger_than_the_limit_says_so() -> None:
    """A peer would close its connection on such a frame; it gets code 1 with both sizes instead."""
    dispatcher = dispatcher_of(replies(Reply(bytes(4096))), max_frame_bytes=4096)

    answer = only(await dispatcher.answer(Request(RemotingCommand(KNOWN, opaque=7), connection_to(dispatcher))))

    assert (1, 7, b"") == (answer.code, answer.opaque, answer.body)
    assert "frame of 4201 bytes, limit 4096" == answer.remark


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_unknown_code_is_refused_in_javas_words() -> None:
    """Code 3; the leading blank is Java's."""
    answer = await ask(replies(Reply()), RemotingCommand(99999, opaque=7))

    assert (3, 7, " request type 99999 not supported") == (answer.code, answer.opaque, answer.remark)


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (SystemError_("disable"), 1, "disable"),
        (BadRequestError("field topic is missing"), 1, "field topic is missing"),
        (NotReadyError(), 1, "name server not ready"),
        (SystemBusyError("later"), 2, "later"),
        (NoPermissionError("no"), 16, "no"),
        (TopicNotExistError("none"), 17, "none"),
        (QueryNotFoundError(None), 22, None),
        (GoAwayError("please go away"), 1500, "please go away"),
        (OtherResponseError(4711, "odd"), 4711, "odd"),
    ],
)
async def test_response_error_becomes_its_code_and_remark(
    error: ResponseError, code: int, remark: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """What a handler raises is what the peer sees, and nothing is wrong with the server: no line in the log."""
    answer = await ask(raises(error), RemotingCommand(KNOWN, opaque=7))

    assert (code, 7, remark, None) == (answer.code, answer.opaque, answer.remark, answer.ext_fields)
    assert [] == caplog.records


async def test_refusal_may_carry_ext_fields() -> None:
    """Some of RocketMQ's refusals have an empty map of them."""
    answer = await ask(raises(SystemError_("crc32 not match", ext_fields={})), RemotingCommand(KNOWN))

    assert {} == answer.ext_fields


@pytest.mark.parametrize(("role", "closes"), [("client", True), ("broker", False)])
async def test_not_ready_sends_clients_away(role: str, closes: bool) -> None:  # noqa: FBT001
    """A Java client changes servers only when its connection dies; a broker's must stay."""
    dispatcher = dispatcher_of(raises(NotReadyError()))
    connection = connection_to(dispatcher)
    connection.note_role(role)

    answer = await dispatcher.answer(Request(RemotingCommand(KNOWN), connection))

    assert closes == answer.closes
    assert 1 == only(answer).code


# -- bugs -------------------------------------------------------------------------------------------------------------


async def test_bug_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The peer sees code 1 and the error's class, not its text; the log has code, peer and traceback."""
    answer = await ask(raises(ZeroDivisionError("secret")), RemotingCommand(KNOWN, opaque=7))

    assert (1, 7) == (answer.code, answer.opaque)
    assert "internal error: ZeroDivisionError; see the server's log" == answer.remark
    [record] = caplog.records
    assert (logging.ERROR, "request 105 from ? failed") == (record.levelno, record.getMessage())
    assert record.exc_info is not None
    assert ZeroDivisionError is record.exc_info[0]


async def test_cancelled_handler_is_not_answered() -> None:
    """Who cancels a request means it: no answer is made up."""
    dispatcher = dispatcher_of(raises(asyncio.CancelledError()))

    with pytest.raises(asyncio.CancelledError):
        await dispatcher.answer(Request(RemotingCommand(KNOWN), connection_to(dispatcher)))
    assert {} == dispatcher.answered


# -- oneway -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "handle"),
    [
        (KNOWN, replies(Reply(b"done"))),
        (KNOWN, raises(BadRequestError("field topic is missing"))),
        (KNOWN, raises(ZeroDivisionError())),
        (99999, replies(Reply())),
    ],
    ids=["done", "refused", "bug", "unknown"],
)
async def test_oneway_is_never_answered(code: int, handle: Handler) -> None:
    """Nobody waits for an answer, not even for an error."""
    dispatcher = dispatcher_of(handle)
    command = RemotingCommand(code, flag=2)

    assert Answer(b"") == await dispatcher.answer(Request(command, connection_to(dispatcher)))


async def test_oneway_is_carried_out() -> None:
    """It is a request like any other."""
    seen: list[int | None] = []

    async def note(request: Request) -> Reply:
        seen.append(request.command.opaque)
        return Reply()

    dispatcher = dispatcher_of(note)
    await dispatcher.answer(Request(RemotingCommand(KNOWN, opaque=7, flag=2), connection_to(dispatcher)))

    assert [7] == seen


async def test_bug_behind_a_oneway_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is told, but somebody must look."""
    dispatcher = dispatcher_of(raises(ZeroDivisionError()))
    await dispatcher.answer(Request(RemotingCommand(KNOWN, flag=2), connection_to(dispatcher)))

    assert ["request 105 from ? failed"] == [record.getMessage() for record in caplog.records]


# -- counting ---------------------------------------------------------------------------------------------------------


async def test_answers_are_counted_by_request_and_response_code() -> None:
    """Unknown codes are counted together, so that no peer can grow the table."""
    outcomes: list[Callable[[Request], Awaitable[Reply]]] = [
        replies(Reply()),
        replies(Reply()),
        raises(TopicNotExistError("none")),
        raises(ZeroDivisionError()),
    ]

    async def handle(request: Request) -> Reply:
        return await outcomes.pop(0)(request)

    dispatcher = dispatcher_of(handle)
    connection = connection_to(dispatcher)
    for code in (KNOWN, KNOWN, KNOWN, KNOWN, 99999, -5):
        await dispatcher.answer(Request(RemotingCommand(code), connection))

    assert {(105, 0): 2, (105, 17): 1, (105, 1): 1, (-1, 3): 2} == dispatcher.answered


async def test_answers_are_timed() -> None:
    """Every answer, also one that is an error; unknown codes are told under one number."""
    is_over = asyncio.Event()

    async def slow(request: Request) -> Reply:
        asyncio.get_running_loop().call_later(0.02, is_over.set)
        await is_over.wait()
        raise TopicNotExistError("no")

    timed: list[tuple[int, float]] = []
    dispatcher = Dispatcher({KNOWN: slow}, timed=lambda code, seconds: timed.append((code, seconds)))
    for code in (KNOWN, 4711):
        await dispatcher.answer(Request(RemotingCommand(code=code, opaque=1), connection_to(dispatcher)))

    assert [KNOWN, -1] == [code for code, _ in timed]
    assert [True, False] == [seconds >= 0.015 for _, seconds in timed]
