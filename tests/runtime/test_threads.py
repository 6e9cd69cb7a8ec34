"""Work in threads, also when the process can start none."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from namesrv_runtime.threads import NoThreadError, in_thread
from tests.support.threads import do_queued_work, without_new_threads


async def test_work_is_done_in_another_thread() -> None:
    """The caller gets the result or the exception of the work, also a RuntimeError."""
    assert await in_thread(threading.current_thread) is not threading.current_thread()

    def fail(text: str) -> None:
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="a bug"):
        await in_thread(fail, "a bug")


@pytest.mark.parametrize("busy_threads", [0, 1])
async def test_work_without_a_thread_is_taken_back(busy_threads: int) -> None:
    """Work that is reported as not begun is not done later, by a thread that was busy at that moment."""
    done: list[str] = []
    with (
        without_new_threads(busy_threads=busy_threads) as executor,
        pytest.raises(NoThreadError, match="can't start new thread"),
    ):
        await in_thread(done.append, "refused")

    await in_thread(done.append, "allowed")
    do_queued_work(executor)
    assert done == ["allowed"]


async def test_other_errors_of_an_executor_are_not_a_lack_of_threads() -> None:
    """An executor that the application has shut down is an error of the application."""
    await asyncio.get_running_loop().shutdown_default_executor()

    with pytest.raises(RuntimeError, match="shutdown"):
        await in_thread(threading.current_thread)


class LateExecutor(ThreadPoolExecutor):
    """An executor in which a busy thread becomes free, and does the work, before the start of a new thread fails."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        super().submit(fn, *args, **kwargs).result()
        raise RuntimeError("can't start new thread")


async def test_work_that_a_thread_has_begun_is_not_taken_back() -> None:
    """The caller gets the result of the work, as if no start of a thread had failed."""
    asyncio.get_running_loop().set_default_executor(LateExecutor(1))
    done: list[str] = []
    await in_thread(done.append, "allowed")
    assert done == ["allowed"]
