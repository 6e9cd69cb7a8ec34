"""Threads can use what lives on a loop, and none is left waiting."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest

from namesrv_runtime.background_loop import StoppedError, Threaded

# Nothing that is right takes a tenth of it.
SECONDS = 120.0


class Nothing:
    """What lives on the loop: nothing."""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is left."""

    def socket_descriptors(self) -> list[int]:
        """It has none."""
        return []


class Background(Threaded[Nothing]):
    """A thread with a loop in which nothing lives."""

    def __init__(self) -> None:
        super().__init__("test-loop", "the client", SECONDS)

    def _made(self) -> Nothing:
        return Nothing()


@pytest.fixture
def background() -> Iterator[Background]:
    """One that runs."""
    with Background() as running:
        yield running


async def answer(value: int) -> int:
    """A little work."""
    await asyncio.sleep(0)
    return value


async def fail(error: type[Exception]) -> None:
    """Work that cannot be done."""
    raise error("of its own")


def test_work_is_done_in_a_thread_of_its_own(background: Background) -> None:
    """Any thread may call; the result, or the exception, is the caller's."""

    async def where() -> str:
        return threading.current_thread().name

    assert background._wait_for(where(), SECONDS) == "test-loop"
    with ThreadPoolExecutor(8) as pool:
        assert list(range(100)) == list(
            pool.map(lambda value: background._wait_for(answer(value), SECONDS), range(100))
        )
    # one of the work's own is its result
    for error in (ZeroDivisionError, TimeoutError):
        with pytest.raises(error, match="of its own"):
            background._wait_for(fail(error), SECONDS)
    background.start()
    assert [thread.name for thread in threading.enumerate()].count("test-loop") == 1


def test_work_that_takes_too_long_is_cancelled(background: Background) -> None:
    """The caller gets its thread back."""
    ended = threading.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        background._wait_for(never(), 0.01)
    assert ended.wait(SECONDS)


def test_telling_waits_for_nobody(background: Background) -> None:
    """It is called with its arguments, in the loop's thread, in order."""
    told: list[tuple[int, str]] = []
    for number in range(3):
        background._tell(lambda value: told.append((value, threading.current_thread().name)), number)

    background._wait_for(answer(0), SECONDS)

    assert told == [(0, "test-loop"), (1, "test-loop"), (2, "test-loop")]


def test_stopped_and_started_again() -> None:
    """A call in between is an error, and no warning about work that never began; each start has a new thread."""
    background = Background()
    for number in range(3):
        background.stop()
        for use in (lambda: background._wait_for(answer(1), SECONDS), lambda: background._tell(print)):
            with pytest.raises(StoppedError, match="the client is not started"):
                use()
        assert repr(background) == "<Background [not started]>"
        background.start()
        assert number == background._wait_for(answer(number), SECONDS)
        background.stop()


def test_its_own_thread_does_not_wait_for_itself(background: Background) -> None:
    """It would for ever."""

    async def call_and_stop() -> list[str]:
        errors = []
        for use in (lambda: background._wait_for(answer(1), SECONDS), background.stop):
            try:
                use()
            except RuntimeError as error:
                errors.append(str(error))
        return errors

    assert (
        background._wait_for(call_and_stop(), SECONDS)
        == ["cannot be called from the client's own callbacks: it would deadlock"] * 2
    )
    assert background._wait_for(answer(1), SECONDS) == 1


def test_stopping_ends_what_others_wait_for() -> None:
    """They are told, and the work is cancelled and has ended when the thread has."""
    background = Background()
    background.start()
    began, ended = threading.Event(), threading.Event()

    async def never() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(background._wait_for, never(), SECONDS)
        assert began.wait(SECONDS)
        background.stop()

        assert ended.is_set()
        with pytest.raises(StoppedError, match="the client was stopped"):
            waiting.result(SECONDS)
    assert "test-loop" not in [thread.name for thread in threading.enumerate()]


def test_whoever_calls_while_it_stops_is_not_left_waiting() -> None:
    """An answer or an error, whatever the moment."""
    for _ in range(20):
        background = Background()
        background.start()
        with ThreadPoolExecutor(4) as pool:

            def call(number: int, background: Background = background) -> int:
                try:
                    return background._wait_for(answer(number), SECONDS)
                except RuntimeError:
                    return -1

            calls = [pool.submit(call, number) for number in range(40)]
            background.stop()
            assert all(one.result(SECONDS) in (number, -1) for number, one in enumerate(calls))
