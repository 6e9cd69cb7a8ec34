"""Memory budget of all peers together, with a share for each network.

A network is `Peer.network`: an IPv4 address, or the /64 of an IPv6 address.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

# One network may hold an eighth of the budget. A large reservation is refused if the network would then hold more than
# an eighth of the part for large reservations. Simultaneous registrations of many brokers on one machine wait a little,
# and only eight networks together can use up the budget.
_SHARE: Final = 8
# Requests, responses and reservations of more bytes than this are large; all others are small.
LARGE_BYTES: Final = 64 * 1024
# Large reservations may use three quarters of the budget, and small ones seven eighths. The rest is kept for
# connections, so that new peers with small requests can connect. Waiting bytes (small requests and small responses) may
# take an eighth of the budget whatever else is charged.
_KEPT_FROM_LARGE: Final = 4
_KEPT_FROM_SMALL: Final = 8
# An eighth of the total is left for peers, however much memory the tables take.
_LEAST: Final = 8


class MemoryBudget:
    """Bytes that peers hold: connections, TLS, received input, unsent responses, watches. Each byte has to be released.

    Small amounts that cannot be refused are charged, even beyond the budget; large amounts are reserved or refused.
    """

    def __init__(
        self,
        total_bytes: int,
        tables_bytes: Callable[[], int] = lambda: 0,
        *,
        least_share_bytes: int = 0,
    ) -> None:
        self.total_bytes = total_bytes
        # The share of a network is at least this, enough for the largest frame, as long as the budget has room: with
        # full tables, the registration of a large broker would otherwise be refused for ever.
        self._least_share_bytes = least_share_bytes
        # bytes that all peers hold now
        self.used_bytes = 0
        # the part of `used_bytes` that open connections cost by themselves
        self._connections_bytes = 0
        # the part of `used_bytes` that waits without a reservation: received input (but for large frames), small
        # requests in the queues, and unsent small responses
        self._waiting_bytes = 0
        self._tables_bytes = tables_bytes
        self._used_by: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<MemoryBudget [{self.used_bytes} of {self.peers_bytes()} bytes | {len(self._used_by)} networks]>"

    def peers_bytes(self) -> int:
        """Bytes that peers may hold: the total less the memory of the tables, but at least an eighth of the total."""
        return max(self.total_bytes - self._tables_bytes(), self.total_bytes // _LEAST)

    def reserve(self, network: str, size: int) -> bool:
        """Reserve memory for a network; False if the budget or the network's share has too little left."""
        if size <= LARGE_BYTES:
            return self.reserve_as_small(network, size)
        peers = self.peers_bytes()
        room = peers - peers // _KEPT_FROM_LARGE
        return self._take(network, size, room, room)

    def reserve_as_small(self, network: str, size: int) -> bool:
        """Reserve memory by the rules for small amounts, whatever its size: up to seven eighths of the budget."""
        peers = self.peers_bytes()
        return self._take(network, size, peers - peers // _KEPT_FROM_SMALL, peers)

    def reserve_connection(self, network: str, size: int) -> bool:
        """Reserve the memory of a connection; False if the budget or the network's share has too little left.

        Other charges cannot use up the part of the budget that is kept for connections.
        """
        room = peers = self.peers_bytes()
        # Within the part that is kept for connections, only the network's share limits a connection.
        if self._connections_bytes + size <= peers // _KEPT_FROM_SMALL:
            room = max(peers, self.used_bytes + size)
        is_reserved = self._take(network, size, room, peers)
        self._connections_bytes += size if is_reserved else 0
        return is_reserved

    def charge_connection(self, network: str, size: int) -> None:
        """Charge the memory of a connection, even beyond the budget."""
        self._connections_bytes += size
        self.charge(network, size)

    def release_connection(self, network: str, size: int) -> None:
        """Release the memory of a connection."""
        self.charge_connection(network, -size)

    def charge_waiting(self, network: str, size: int) -> None:
        """Charge waiting bytes, even beyond the budget; a negative size releases memory."""
        self._waiting_bytes += size
        self.charge(network, size)

    def has_room_for_waiting(self, network: str) -> bool:
        """False if waiting bytes take more than their eighth, and the budget or the network's share is used up.

        Other charges cannot use up that eighth, so that the requests of connected peers are still answered.
        """
        return self._waiting_bytes <= self.peers_bytes() // _KEPT_FROM_SMALL or self.reserve(network, 0)

    def _take(self, network: str, size: int, room: int, shared: int) -> bool:
        share = max(shared // _SHARE, self._least_share_bytes)
        if self.used_bytes + size > room or self._used_by[network] + size > share:
            return False
        self.charge(network, size)
        return True

    def charge(self, network: str, size: int) -> None:
        """Charge memory to a network, even beyond the budget."""
        self.used_bytes += size
        used = self._used_by[network] + size
        if used:
            self._used_by[network] = used
        else:
            # A network that holds nothing has no entry, so that the counter does not grow.
            self._used_by.pop(network, None)

    def release(self, network: str, size: int) -> None:
        """Release memory that was reserved or charged."""
        self.charge(network, -size)
