"""Every entry of the pending table leaves it, and no two calls share a number."""

import asyncio

import pytest

from namesrv_remoting.aio.pending import PendingCalls
from namesrv_remoting.command import RemotingCommand

ANSWER = RemotingCommand(code=0, opaque=7)


async def test_answer_reaches_the_call_with_its_opaque() -> None:
    """Of two calls, the one with opaque 7 gets the answer, and the other one goes on waiting."""
    pending = PendingCalls(first_opaque=6)
    with pending.opened() as (six, waits), pending.opened() as (seven, answered):
        assert (6, 7) == (six, seven)
        assert pending.answer(ANSWER)
        assert ANSWER is await answered
        assert not waits.done()
        assert len(pending) == 2
    assert len(pending) == 0


@pytest.mark.parametrize("opaque", [8, -7, None])
async def test_answer_that_nobody_waits_for_is_not_taken(opaque: int | None) -> None:
    """Neither one with a number that was not drawn, nor one without any."""
    pending = PendingCalls(first_opaque=7)
    with pending.opened() as (_, waits):
        assert not pending.answer(RemotingCommand(code=0, opaque=opaque))
        assert not waits.done()


async def test_answer_after_the_call_is_not_taken() -> None:
    """The entry is gone with the block, whatever ended it."""
    pending = PendingCalls(first_opaque=7)
    with pytest.raises(LookupError), pending.opened():
        raise LookupError

    assert len(pending) == 0
    assert not pending.answer(ANSWER)


async def test_second_answer_is_not_taken() -> None:
    """A peer that answers twice is heard once."""
    pending = PendingCalls(first_opaque=7)
    with pending.opened() as (_, answer):
        assert pending.answer(ANSWER)
        assert not pending.answer(RemotingCommand(code=1, opaque=7))
        assert ANSWER is await answer


async def test_all_calls_fail_each_with_its_own_exception() -> None:
    """Exceptions are not shared: each gets the traceback of its own caller. One that is answered stays so."""
    pending = PendingCalls(first_opaque=7)
    with pending.opened() as (_, answered), pending.opened() as (_, first), pending.opened() as (_, second):
        pending.answer(ANSWER)
        pending.fail_all(lambda: LookupError("broker-a"))

        assert ANSWER is await answered
        failures = first.exception(), second.exception()
        assert [LookupError, LookupError] == [type(failure) for failure in failures]
        assert failures[0] is not failures[1]


async def test_failure_that_nobody_fetches_is_not_reported() -> None:
    """A caller that leaves in the moment its call fails leaves nothing for asyncio to complain about."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    pending = PendingCalls()
    with pending.opened():
        pending.fail_all(lambda: LookupError("broker-a"))

    assert [] == complaints


def test_opaque_goes_on_at_the_negative_end_of_an_int32() -> None:
    """As Java's counter does: 2147483647 is followed by -2147483648, and -1 by 0."""
    pending = PendingCalls(first_opaque=2147483646)
    assert [2147483646, 2147483647, -2147483648, -2147483647] == [pending.draw_opaque() for _ in range(4)]

    pending = PendingCalls(first_opaque=-1)
    assert [-1, 0, 1] == [pending.draw_opaque() for _ in range(3)]


async def test_opaque_of_a_pending_call_is_not_drawn_again() -> None:
    """A call that has been pending since the counter's last round keeps its number to itself."""
    pending = PendingCalls(first_opaque=5)
    with pending.opened() as (five, _), pending.opened() as (six, _):
        pending._next_opaque = 4  # four thousand million calls later
        assert (5, 6) == (five, six)
        assert [4, 7] == [pending.draw_opaque(), pending.draw_opaque()]
