"""The background loop: threads use objects that live on a loop in another thread."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest

from namesrv_runtime import loops
from namesrv_runtime.background_loop import StoppedError, Threaded
from tests.support.threads import without_new_threads

# a correct test needs less than a tenth of it
SECONDS = 120.0


class Nothing:
    """An object without resources."""

    async def __aenter__(self) -> Self:
        """Enter without work."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave without work."""

    def socket_descriptors(self) -> list[int]:
        """No descriptors."""
        return []


class Background(Threaded[Nothing]):
    """A thread with an event loop and an object without resources."""

    def __init__(self) -> None:
        super().__init__("test-loop", "the client", SECONDS)

    def _made(self) -> Nothing:
        return Nothing()


@pytest.fixture
def background() -> Iterator[Background]:
    """A running background loop."""
    with Background() as running:
        yield running


async def answer(value: int) -> int:
    """Return the value."""
    await asyncio.sleep(0)
    return value


async def fail(error: type[Exception]) -> None:
    """Raise an error."""
    raise error("of its own")


def test_work_is_done_in_a_thread_of_its_own(background: Background) -> None:
    """Any thread may call, and gets the result or the exception."""

    async def where() -> str:
        return threading.current_thread().name

    assert background._wait_for(where(), SECONDS) == "test-loop"
    with ThreadPoolExecutor(8) as pool:
        assert list(range(100)) == list(
            pool.map(lambda value: background._wait_for(answer(value), SECONDS), range(100))
        )
    # an error of the work is its result
    for error in (ZeroDivisionError, TimeoutError):
        with pytest.raises(error, match="of its own"):
            background._wait_for(fail(error), SECONDS)
    background.start()
    assert [thread.name for thread in threading.enumerate()].count("test-loop") == 1


async def test_start_without_a_thread_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each attempt would leave the descriptors of an event loop."""
    made = loops.new_event_loop()
    with monkeypatch.context() as patch:
        patch.setattr(loops, "new_event_loop", lambda: made)
        background = Background()
        with without_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
            background.start()
    assert made.is_closed()
    background.start()
    background.stop()


def test_work_is_cancelled_after_its_timeout(background: Background) -> None:
    """The caller gets a TimeoutError."""
    ended = threading.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        background._wait_for(never(), 0.01)
    assert ended.wait(SECONDS)


def test_loop_is_restarted() -> None:
    """A call in between is an error without an asyncio warning; each start has a new thread."""
    background = Background()
    for number in range(3):
        background.stop()
        for use in (lambda: background._wait_for(answer(1), SECONDS), lambda: background._call_soon(print)):
            with pytest.raises(StoppedError, match="the client is not started"):
                use()
        assert repr(background) == "<Background [not started]>"
        background.start()
        assert number == background._wait_for(answer(number), SECONDS)
        background.stop()


def test_call_from_the_own_thread_is_an_error(background: Background) -> None:
    """Such a call would wait for ever."""

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


def test_stop_ends_waiting_calls() -> None:
    """Waiting callers get an error, and their work is cancelled before the thread ends."""
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


def test_call_during_a_stop_never_hangs() -> None:
    """A call gets a result or an error at every moment of the stop."""
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
