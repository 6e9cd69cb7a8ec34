"""Callbacks of an application about its NameServers, called in order on the event loop."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, ParamSpec

P = ParamSpec("P")

# The errors that a function of the application may raise without an effect on the caller, which logs them. Without the
# CancelledError in this list, a cancelled task of the application would end the task that calls the function.
CALLBACK_ERRORS: Final = (Exception, asyncio.CancelledError)


def check_plain(name: str, callback: Callable[..., object] | None) -> None:
    """Raise a TypeError for a value that is no function, and for a coroutine function: no code would await it."""
    if callback is not None and not callable(callback):
        raise TypeError(f"{name}: {callback!r} is not a function")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{name}: a coroutine function would never be awaited; pass a plain function")


@dataclass(eq=False)
class ServerEvents:
    """Calls the application's functions between `open` and `close`. A function that raises is logged and ignored."""

    logger: logging.Logger
    _: KW_ONLY
    # called with the server's address
    on_connected: Callable[[str], object] | None = None
    # called with the server's address and the reason
    on_disconnected: Callable[[str, str], object] | None = None
    on_ready: Callable[[], object] | None = None
    # called with all addresses
    on_servers_changed: Callable[[tuple[str, ...]], object] | None = None
    is_open: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name in ("on_connected", "on_disconnected", "on_ready", "on_servers_changed"):
            check_plain(name, getattr(self, name))

    def open(self) -> None:
        """Begin to call the functions."""
        self.is_open = True

    def close(self) -> None:
        """Stop calling the functions."""
        self.is_open = False

    def call(self, callback: Callable[P, object] | None, *arguments: P.args, **named: P.kwargs) -> None:
        """Call one of the application's functions, if the application has given it."""
        if callback is None or not self.is_open:
            return
        try:
            callback(*arguments, **named)
        except CALLBACK_ERRORS:
            self.logger.exception("callback %r failed", callback)

    def connected(self, address: str) -> None:
        """A server has responded over a new connection; for a broker, it has accepted a registration over it."""
        self.call(self.on_connected, address)

    def disconnected(self, address: str, why: str) -> None:
        """The connection to a server is closed, or the server refuses a broker that it does not know any more."""
        self.call(self.on_disconnected, address, why)

    def ready(self) -> None:
        """The broker is registered, or routes can be requested: for the first time, or again after an outage."""
        self.call(self.on_ready)

    def servers_changed(self, addresses: tuple[str, ...]) -> None:
        """The list of servers has changed, or is known for the first time."""
        self.call(self.on_servers_changed, addresses)
