"""A connection of uvicorn's that does not wait for ever for a request: a stranger could hold very many of them."""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

# connections at once: 500 tabs, and as many that ask for something else; others are told to come later
MAX_CONNECTIONS: Final = 1_000


class HttpConnection(H11Protocol):
    """Closes a connection whose peer does not send a whole head in time; forms and streams have deadlines elsewhere."""

    head_seconds: float = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A peer has connected."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.head_seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that has begun has to end in time."""
        if self._deadline is None and self._is_peers_turn:
            self._deadline = self.loop.call_later(self.head_seconds, self.transport.abort)
        super().data_received(data)
        if not self._is_peers_turn:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._cancel()
        super().connection_lost(exc)

    @property
    def _is_peers_turn(self) -> bool:
        # there is none before the first request, whatever uvicorn's annotation says
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
