"""The race of connection attempts to the addresses of one host."""

import asyncio
from functools import partial

import pytest

from namesrv_remoting.aio.happy_eyeballs import first_success, reachable_address
from tests.support.fake_clock import FakeClock, settle


class Race:
    """A race of three attempts, which end when the test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ends: list[asyncio.Future[str]] = []
        loop = asyncio.get_running_loop()
        self.futures: list[asyncio.Future[str]] = [loop.create_future() for _ in range(3)]

        async def attempt(number: int) -> str:
            self.ends.append(self.futures[number])
            return await self.futures[number]

        attempts = [partial(attempt, number) for number in range(3)]
        self.result = asyncio.create_task(first_success(attempts, self.clock))


async def test_each_attempt_begins_250_ms_after_the_one_before() -> None:
    """The first success ends the race and cancels the other attempts."""
    race = Race()
    for seconds, begun in ((0.24, 1), (0.01, 2), (0.24, 2), (0.01, 3)):
        await race.clock.advance(seconds)
        assert len(race.ends) == begun
    race.futures[1].set_result("second")

    assert await race.result == "second"
    assert [future.cancelled() for future in race.futures] == [True, False, True]


async def test_failure_begins_the_next_attempt_at_once_and_the_last_error_is_raised() -> None:
    """No time passes between the attempts."""
    race = Race()
    for future in race.futures:
        await settle()
        future.set_exception(OSError(f"error {len(race.ends)}"))

    with pytest.raises(OSError, match=r"^error 3$"):
        await race.result


async def test_cancelled_caller_cancels_all_attempts() -> None:
    """An attempt that had been left alone would keep its socket."""
    race = Race()
    await race.clock.advance(0.25)
    race.result.cancel()

    with pytest.raises(asyncio.CancelledError):
        await race.result
    assert [future.cancelled() for future in race.futures] == [True, True, False]


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "fe80::1%eth0"])
async def test_address_is_not_looked_up(address: str) -> None:
    """An address, with or without its interface, stands for itself."""
    assert await reachable_address(address, 9876, FakeClock()) == address
