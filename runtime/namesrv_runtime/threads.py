"""Work in threads for an event loop whose process may be at its limit of threads."""

import asyncio
import concurrent.futures
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# the message of CPython's RuntimeError; all other RuntimeErrors are errors of a program
_NO_THREAD: Final = "can't start new thread"


class NoThreadError(OSError):
    """The process can start no further thread; the work was not begun, and may be tried again later."""

    def __init__(self) -> None:
        # An error without a number: Python does not tell which error the system has returned.
        super().__init__(None, _NO_THREAD)

    def __str__(self) -> str:
        return _NO_THREAD


@contextmanager
def thread_starts() -> Iterator[None]:
    """Turn a failed start of a thread within the block into a NoThreadError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        raise NoThreadError from error


async def in_thread(work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """The result of work in a thread of the loop's default executor. Raises NoThreadError, and what the work raises.

    The work runs without the context variables of the caller.
    """
    return await begun_in_thread(work, *arguments)


def begun_in_thread(work: Callable[[*Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
    """The future result of work that a thread of the loop's default executor begins. Raises NoThreadError.

    `asyncio.to_thread` raises a RuntimeError without a thread, and may do the work all the same: a ThreadPoolExecutor
    queues work before it starts a thread, and leaves the work in its queue if the start fails.
    """
    # Decides whether a thread begins the work or this function takes it back, and has the result.
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    try:
        with thread_starts():
            asyncio.get_running_loop().run_in_executor(None, _run, outcome, work, arguments)
    except NoThreadError:
        # Another thread may have begun the work already.
        if outcome.cancel():
            raise
    return asyncio.wrap_future(outcome)


def _run(outcome: "concurrent.futures.Future[T]", work: Callable[[*Ts], T], arguments: tuple[*Ts]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = work(*arguments)
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        outcome.set_exception(error)
        # The error refers to this frame: without `del`, the memory of the work would stay in a reference cycle.
        del outcome
    else:
        outcome.set_result(result)


async def addresses_of(host: str, port: int) -> list[tuple[Any, ...]]:
    """The entries of `getaddrinfo` for TCP. Raises OSError, also without a thread, and UnicodeError."""
    # asyncio's own loop looks names up in its default executor. Abandoned work there does no harm.
    with thread_starts():
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
