"""Every question gets its own answer, or the error that says why not."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.codes import SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import (
    LocalProtocolError,
    NoPermissionError,
    NotReadyError,
    OtherResponseError,
    RequestTimeoutError,
    ResponseError,
    TopicNotExistError,
)
from tests.support.fake_clock import FakeClock, settle
from tests.support.scripted_server import Peer, ScriptedServer

T = TypeVar("T")


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[ScriptedServer, RemotingClient, FakeClock]]:
    """A server that does what the test says, a client of it, and the client's clock."""
    clock = FakeClock()
    async with ScriptedServer() as server, RemotingClient(server.address, clock=clock, **options) as client:
        yield server, client, clock


def ask(client: RemotingClient, code: int, **options: Any) -> asyncio.Task[RemotingCommand]:
    """A question on its way, with three seconds of time unless it says otherwise."""
    return started(client.invoke(code, **{"timeout_seconds": 3.0, **options}))


def started(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for it."""
    return asyncio.create_task(work)


async def test_json_question_is_on_the_wire_to_the_byte() -> None:
    """A frame as Java writes it: members in alphabetical order, compact; language PYTHON, version 479."""
    header = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    async with asking() as (server, client, _):
        call = ask(client, 105, ext_fields={"topic": "T"}, body=b"body")
        peer = await server.accept()

        sent = await peer.reader.readexactly(8 + 125 + 4)
        assert b"\x00\x00\x00\x85\x00\x00\x00\x7d" + header + b"body" == sent

        peer.answer(0, b"route", extFields={"a": "b"})
        answer = await call
    assert (0, b"route", {"a": "b"}) == (answer.code, answer.body, answer.ext_fields)


async def test_native_question_is_on_the_wire_to_the_byte() -> None:
    """Type 77, an array of six, and an answer of the same kind."""
    async with asking() as (server, client, _):
        call = ask(client, 20002, serialize_type=SerializeType.MSGPACK, version=480)
        peer = await server.accept()

        sent = await peer.reader.readexactly(8 + 11)
        assert b"\x00\x00\x00\x0f\x4d\x00\x00\x0b\x96\xcd\x4e\x22\x00\x00\xcd\x01\xe0\xc0\xc0" == sent

        peer.send(b"\x00\x00\x00\x0e\x4d\x00\x00\x09\x96\x00\x00\x01\xcd\x01\xdf\xc0\xc0\x80")
        answer = await call
    assert (0, b"\x80", 77) == (answer.code, answer.body, answer.serialize_type)


async def test_answers_find_their_questions_in_any_order() -> None:
    """Ten questions in flight on one connection, answered from the last to the first."""
    async with asking() as (server, client, _):
        calls = [ask(client, 105, body=b"%d" % number) for number in range(10)]
        peer = await server.accept()
        questions = [await peer.receive() for _ in calls]
        assert client.pending_count == 10

        for question in reversed(questions):
            peer.answer(question.opaque, b"answer to " + question.body)
        answers = await asyncio.gather(*calls)

        assert [b"answer to %d" % number for number in range(10)] == [answer.body for answer in answers]
        assert client.pending_count == 0
        assert server.connections == 1


async def test_answers_may_come_byte_by_byte() -> None:
    """However the network chops an answer, it is one."""
    async with asking() as (server, client, _):
        call = ask(client, 106)
        peer = await server.accept()
        await peer.receive()

        for byte in b'\x00\x00\x00\x1a\x00\x00\x00\x15{"flag":1,"opaque":0}!':
            peer.send(bytes([byte]))
            await settle()
        assert (await call).body == b"!"


@pytest.mark.parametrize(
    ("code", "remark", "error"),
    [
        (1, "name server not ready", NotReadyError),
        (16, "no", NoPermissionError),
        (17, "No topic route info", TopicNotExistError),
        (4711, "who knows", OtherResponseError),
    ],
)
async def test_refusal_is_raised_as_the_class_of_its_code(code: int, remark: str, error: type[ResponseError]) -> None:
    """With the remark as its text, and with code, remark and ext fields for who wants to know."""
    async with asking() as (server, client, _):
        call = ask(client, 105)
        peer = await server.accept()
        peer.answer((await peer.receive()).opaque, code=code, remark=remark, extFields={"boot_id": "b1"})

        with pytest.raises(error, match=remark) as caught:
            await call
    assert error is type(caught.value)
    assert (code, remark, {"boot_id": "b1"}) == (caught.value.code, caught.value.remark, caught.value.ext_fields)


async def test_raw_invoke_returns_refusals() -> None:
    """Whoever wants the answer itself gets it, whatever its code."""
    async with asking() as (server, client, _):
        call = started(client.invoke_raw(105, timeout_seconds=3.0))
        peer = await server.accept()
        peer.answer((await peer.receive()).opaque, b"body", code=17, remark="No topic route info")

        answer = await call
    assert (17, "No topic route info", b"body") == (answer.code, answer.remark, answer.body)


async def test_question_times_out_and_its_late_answer_is_dropped() -> None:
    """After 3.0 s the caller gives up, the table is empty, and the connection serves the next question."""
    async with asking() as (server, client, clock):
        call = ask(client, 105)
        peer = await server.accept()
        late = await peer.receive()
        await clock.advance(2.9)
        assert client.pending_count == 1
        await clock.advance(0.1)

        with pytest.raises(RequestTimeoutError, match=rf"^request 105 to {server.address}: no answer within 3\.0 s$"):
            await call
        assert client.pending_count == 0

        call = ask(client, 106)
        question = await peer.receive()
        peer.answer(late.opaque, b"late")
        peer.answer(question.opaque, b"in time")
        assert b"in time" == (await call).body
        assert server.connections == 1


async def test_cancelled_question_leaves_the_table() -> None:
    """Its answer is dropped, and its number is not what the next question gets."""
    async with asking() as (server, client, _):
        call = ask(client, 105)
        peer = await server.accept()
        cancelled = await peer.receive()
        call.cancel()
        await settle()
        assert call.cancelled()
        assert client.pending_count == 0

        call = ask(client, 106)
        question = await peer.receive()
        assert question.opaque != cancelled.opaque
        peer.answer(cancelled.opaque, b"to nobody")
        peer.answer(question.opaque, b"to us")
        assert b"to us" == (await call).body


async def test_answers_that_nobody_waits_for_are_dropped() -> None:
    """One with a number never drawn, one without any, and the second one of two: the connection goes on."""
    async with asking() as (server, client, _):
        call = ask(client, 105)
        peer = await server.accept()
        question = await peer.receive()
        peer.answer(12345)
        peer.send(b'\x00\x00\x00\x0e\x00\x00\x00\x0a{"flag":1}')
        peer.answer(question.opaque, b"first")
        peer.answer(question.opaque, b"second")
        assert b"first" == (await call).body

        call = ask(client, 106)
        peer.answer((await peer.receive()).opaque)
        await call
        assert client.connected


async def test_oneway_is_sent_and_not_waited_for() -> None:
    """Flag 2, a number of its own, and nothing in the table."""
    async with asking() as (server, client, _):
        await client.oneway(904, ext_fields={"brokerName": "a"}, body=b"b", timeout_seconds=1.0)
        peer = await server.accept()

        notice = await peer.receive()
        assert (904, 2, {"brokerName": "a"}, b"b") == (
            notice.code,
            notice.header["flag"],
            notice.header["extFields"],
            notice.body,
        )
        assert client.pending_count == 0


async def test_oneway_and_questions_draw_from_one_counter() -> None:
    """An answer to a oneway number can never be taken for that of a question."""
    async with asking() as (server, client, _):
        await client.oneway(904, timeout_seconds=1.0)
        call = ask(client, 105)
        peer = await server.accept()
        assert [0, 1] == [(await peer.receive()).opaque, (await peer.receive()).opaque]
        peer.answer(1)
        await call


async def receive_refusal(peer: Peer) -> tuple[int, int, str, int]:
    """Code, flag, remark and opaque of an answer that the client sends."""
    header = (await peer.receive()).header
    return header["code"], header["flag"], header["remark"], header["opaque"]


async def test_requests_of_the_server_go_to_the_callback() -> None:
    """A oneway 905 is heard and not answered; one that wants an answer is heard and refused with code 3."""
    heard: list[tuple[int, bytes]] = []
    async with asking(on_request=lambda request: heard.append((request.code, request.body))) as (server, client, _):
        call = ask(client, 105)
        peer = await server.accept()
        question = await peer.receive()
        peer.send(b'\x00\x00\x00\x24\x00\x00\x00\x20{"code":905,"flag":2,"opaque":0}')
        peer.answer(question.opaque)
        await call
        peer.send(b'\x00\x00\x00\x1a\x00\x00\x00\x16{"code":40,"opaque":7}')

        # the oneway one, with the opaque of our own question, has neither answered that nor been answered
        assert (3, 1, " request type 40 not supported", 7) == await receive_refusal(peer)
        assert [(905, b""), (40, b"")] == heard


async def test_requests_of_the_server_are_ignored_without_a_callback() -> None:
    """Oneway ones without a trace, others with code 3; one without a number cannot be refused."""
    async with asking() as (server, client, _):
        await client.oneway(904, timeout_seconds=1.0)
        peer = await server.accept()
        await peer.receive()
        peer.send(b'\x00\x00\x00\x1b\x00\x00\x00\x17{"code":905,"opaque":8}')
        peer.send(b'\x00\x00\x00\x10\x00\x00\x00\x0c{"code":905}')
        peer.send(b'\x00\x00\x00\x1b\x00\x00\x00\x17{"code":906,"opaque":9}')

        assert (3, 1, " request type 905 not supported", 8) == await receive_refusal(peer)
        assert (3, 1, " request type 906 not supported", 9) == await receive_refusal(peer)


async def test_question_that_cannot_be_sent_leaves_everything_as_it_was() -> None:
    """Larger than the limit: an error of ours, nothing in the table, and the connection goes on."""
    async with asking(max_frame_bytes=1024) as (server, client, _):
        with pytest.raises(LocalProtocolError, match=r"^frame of 1\d\d\d bytes, limit 1024$"):
            await client.invoke(103, body=bytes(1000), timeout_seconds=3.0)
        assert client.pending_count == 0

        call = ask(client, 106)
        peer = await server.accept()
        peer.answer((await peer.receive()).opaque)
        await call


async def test_repr_shows_the_state() -> None:
    """Address, connection and pending calls, for whoever reads a failing assert."""
    async with asking() as (server, client, _):
        assert f"<RemotingClient [{server.address} | not connected | 0 pending]>" == repr(client)
        call = ask(client, 106)
        peer = await server.accept()
        question = await peer.receive()
        assert f"<RemotingClient [{server.address} | connected | 1 pending]>" == repr(client)
        peer.answer(question.opaque)
        await call
    assert f"<RemotingClient [{server.address} | closed | 0 pending]>" == repr(client)
