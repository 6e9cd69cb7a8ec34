"""Every entry of the pending table leaves it, and no two calls share a number."""

import asyncio

from namesrv_remoting.aio.client_connection import PendingCalls


async def test_all_calls_fail_each_with_its_own_exception() -> None:
    """Exceptions are not shared: each gets the traceback of its own caller."""
    pending = PendingCalls()
    with pending.opened() as (_, first), pending.opened() as (_, second):
        pending.fail_all(lambda: LookupError("broker-a"))

        assert first.exception() is not second.exception()
    assert len(pending) == 0


async def test_failure_that_nobody_fetches_is_not_reported() -> None:
    """A caller that leaves in the moment its call fails leaves nothing for asyncio to complain about."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    pending = PendingCalls()
    with pending.opened():
        pending.fail_all(lambda: LookupError("broker-a"))

    assert [] == complaints


async def test_opaque_is_an_int32_that_no_pending_call_has() -> None:
    """As in Java, 2147483647 is followed by -2147483648; a call that outlives a round keeps its number to itself."""
    pending = PendingCalls(first_opaque=2147483646)
    with pending.opened() as (first, _), pending.opened() as (second, _):
        assert (2147483646, 2147483647, -2147483648) == (first, second, pending.draw_opaque())
        pending._next_opaque = 2147483645  # four thousand million calls later
        assert [2147483645, -2147483648] == [pending.draw_opaque() for _ in range(2)]
