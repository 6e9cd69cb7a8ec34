"""The addresses of a host name, and the race of connection attempts to them (happy eyeballs, RFC 8305).

asyncio's own `happy_eyeballs_delay` is not an option, because uvloop's `create_connection` has no such parameter.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeVar

from namesrv_runtime.clock import Clock, timeout_on

T = TypeVar("T")

# the delay that RFC 8305 recommends
_DELAY_SECONDS: Final = 0.25


async def addresses_of(host: str, port: int) -> list[str]:
    """The addresses of a host name, in the resolver's order; an address stands for itself. Raises OSError."""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # getnameinfo keeps the interface of a link-local address: fe80::1%eth0.
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return list(dict.fromkeys(socket.getnameinfo(entry[4], numeric)[0] for entry in found))


async def first_success(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]], clock: Clock, *, discard: Callable[[T], None]
) -> T:
    """The result of the first attempt that succeeds; if all fail, raises the last error.

    An attempt begins once the attempt before it has failed or has run for 250 ms. When one has succeeded, the others
    are cancelled; the result of another one that succeeded at the same moment is passed to `discard`.
    """
    if len(attempts) == 1:
        return await attempts[0]()
    waiting = list(attempts)
    error: BaseException = OSError("no address")
    running: set[asyncio.Task[T]] = set()
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(waiting.pop(0)()))
            with suppress(TimeoutError):
                async with timeout_on(clock, _DELAY_SECONDS) if waiting else nullcontext():
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                running.discard(task)
                if (failure := task.exception()) is None:
                    return task.result()
                error = failure
        raise error
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for task in running:
            if not task.cancelled() and task.exception() is None:
                discard(task.result())
