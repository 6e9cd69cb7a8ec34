"""Responses of servers to requests of pages, beyond the poller's: kept for some seconds, shared by all tabs."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.servers import Responses, responses_of
from namesrv_console.poller import Observed
from namesrv_runtime.clock import Clock

T = TypeVar("T")

KEPT_SECONDS: Final = 5.0
# Limit of different requests; the route of each topic is one.
_MAX_KEPT: Final = 200


@dataclass(slots=True)
class _Kept:
    responses: Responses[Any] = field(default_factory=lambda: Responses({}))
    requested_at: float = float("-inf")
    servers: Sequence[str] = ()
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedResponses:
    """The last responses of the servers, by the key of the request."""

    def __init__(self, servers: Mapping[str, NameServer], observed: Observed, clock: Clock) -> None:
        self._servers = servers
        self._observed = observed
        self._clock = clock
        self._kept: dict[Hashable, _Kept] = {}
        # True if a page has used a response since the last renewal, and may still be open.
        self._is_shown = False

    def __repr__(self) -> str:
        return f"<SharedResponses [{len(self._kept)} requests]>"

    async def run(self) -> NoReturn:
        """Have open pages request anew, since the poller does not notice that these responses change."""
        while True:
            await self._clock.sleep(KEPT_SECONDS)
            if self._is_shown:
                self._is_shown = False
                self._observed.renew()

    def forget(self) -> None:
        """Forget all responses, since an action has changed what servers respond."""
        self._kept.clear()

    async def of(
        self, what: Hashable, servers: Sequence[str], request: Callable[[NameServer], Awaitable[T]]
    ) -> Responses[T]:
        """Responses of these servers, at most a few seconds old; `what` is the key of the request."""
        self._is_shown = True
        kept = self._kept.setdefault(what, _Kept())
        async with kept.lock:
            if self._clock.monotonic() - kept.requested_at >= KEPT_SECONDS or kept.servers != servers:
                kept.responses = await responses_of([self._servers[server] for server in servers], request)
                kept.servers, kept.requested_at = servers, self._clock.monotonic()
        # The oldest requests are removed first.
        while len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept.responses
