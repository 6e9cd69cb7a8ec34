"""The event loop: uvloop where it is installed, else asyncio's own; no global policy is touched."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from namesrv_runtime.threads import NoThreadError, thread_starts

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop, not set as the current loop of any thread."""
    try:
        import uvloop  # noqa: PLC0415  # optional: the wire works without it
    except ImportError:
        # asyncio.new_event_loop would ask the global policy, which the application may have set.
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()


def run(coro_fn: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `coro_fn()` on a loop of its own until it ends, and close the loop."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(coro_fn())
    finally:
        # The loop starts a thread to wait for the threads of its executor. If that fails, Python waits for them at the
        # end of the process.
        with suppress(NoThreadError), thread_starts():
            runner.close()
