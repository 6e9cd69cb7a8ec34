"""What an application is told of its NameServers: by functions of its own, on the loop, in order, until the end."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import ParamSpec

P = ParamSpec("P")


@dataclass(eq=False)
class ServerEvents:
    """Calls back, between `open` and `close`. A function that fails is logged and changes nothing."""

    logger: logging.Logger
    _: KW_ONLY
    # with the server's address
    on_connected: Callable[[str], object] | None = None
    # and why
    on_disconnected: Callable[[str, str], object] | None = None
    on_ready: Callable[[], object] | None = None
    # with all addresses
    on_servers_changed: Callable[[tuple[str, ...]], object] | None = None
    is_open: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        for name in ("on_connected", "on_disconnected", "on_ready", "on_servers_changed"):
            if inspect.iscoroutinefunction(getattr(self, name)):
                raise TypeError(f"{name}: a coroutine function, which nobody would await; pass a plain one")

    def open(self) -> None:
        """Call back from now on."""
        self.is_open = True

    def close(self) -> None:
        """Call back no more."""
        self.is_open = False

    def call(self, callback: Callable[P, object] | None, *arguments: P.args, **named: P.kwargs) -> None:
        """Call one of the application's functions, if it has given it."""
        if callback is None or not self.is_open:
            return
        try:
            callback(*arguments, **named)
        except Exception:
            self.logger.exception("callback %r failed", callback)

    def connected(self, address: str) -> None:
        """A server has answered over a new connection."""
        self.call(self.on_connected, address)

    def disconnected(self, address: str, why: str) -> None:
        """The connection is gone."""
        self.call(self.on_disconnected, address, why)

    def ready(self) -> None:
        """What the application wants of its servers can be had, for the first time or again."""
        self.call(self.on_ready)

    def servers_changed(self, addresses: tuple[str, ...]) -> None:
        """The list of servers is another one, or known at last."""
        self.call(self.on_servers_changed, addresses)
