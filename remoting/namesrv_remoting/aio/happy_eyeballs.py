"""Which address of a host name to connect to: the first one that accepts a connection (happy eyeballs, RFC 8305).

asyncio's own `happy_eyeballs_delay` is not an option, because uvloop's `create_connection` has no such parameter.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeVar

from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.threads import addresses_of

T = TypeVar("T")

# the delay that RFC 8305 recommends
_DELAY_SECONDS: Final = 0.25


async def reachable_address(host: str, port: int, clock: Clock) -> str:
    """The address of a host name that accepts a connection first; an only address is returned without an attempt.

    A host name with several addresses costs one connection more, which is closed at once. Only the connect is raced:
    the TLS handshake follows on the caller's own connection, so that a busy server gets one handshake from each client.
    The socket of the race is not passed on to `create_connection`: when that is cancelled, uvloop closes the
    descriptor, and the socket object would later close another file with the same number.

    Raises:
        OSError: the name cannot be resolved, or no address accepts a connection; the error of the last one.
    """
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return host
    found = await addresses_of(host, port)
    # in the resolver's order
    addresses = list(dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found))
    if len(addresses) == 1:
        return _numeric(addresses[0][1])
    return await first_success([partial(_connect, family, sockaddr) for family, sockaddr in addresses], clock)


async def _connect(family: socket.AddressFamily, sockaddr: Any) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.settimeout(0)
        await asyncio.get_running_loop().sock_connect(tried, sockaddr)
    return _numeric(sockaddr)


def _numeric(sockaddr: Any) -> str:
    # getnameinfo keeps the interface of a link-local address: fe80::1%eth0.
    return socket.getnameinfo(sockaddr, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


async def first_success(attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]], clock: Clock) -> T:
    """The result of the first attempt that succeeds; if all fail, raises the last error.

    An attempt begins once the attempt before it has failed or has run for 250 ms. When one has succeeded, the others
    are cancelled.
    """
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
        await asyncio.gather(*running, return_exceptions=True)
