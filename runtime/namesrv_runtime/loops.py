"""The event loop: uvloop where it is installed, else asyncio's own; no global policy is touched."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

LoopName = Literal["auto", "uvloop", "asyncio"]

T = TypeVar("T")


def loop_factory(loop: LoopName = "auto") -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes loops of this kind, for `asyncio.Runner` and for tests.

    Raises:
        ImportError: uvloop was asked for by name and is not installed.
    """
    # never asyncio.new_event_loop: that one asks the global policy, which somebody may have set to uvloop's
    if loop == "asyncio":
        return asyncio.SelectorEventLoop
    try:
        import uvloop  # noqa: PLC0415  # optional: the wire works without it
    except ImportError as error:
        if loop == "uvloop":
            raise ImportError("event loop 'uvloop' is not installed: pip install 'namesrv[server]'") from error
        return asyncio.SelectorEventLoop
    return uvloop.new_event_loop


def new_event_loop(loop: LoopName = "auto") -> asyncio.AbstractEventLoop:
    """A new loop of this kind, not set as anybody's current loop."""
    return loop_factory(loop)()


def run(coro_fn: Callable[[], Coroutine[Any, Any, T]], *, loop: LoopName = "auto") -> T:
    """Run `coro_fn()` on a loop of its own until it ends, and close the loop."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        return runner.run(coro_fn())
