"""Memory budget of all peers together, with a share for each address."""

from collections import Counter
from collections.abc import Callable
from typing import Final

# An eighth of the budget for one address: what a machine full of brokers registers at once waits a little, and it takes
# eight addresses to use up what there is.
_SHARE: Final = 8
# Large things may take three quarters, and small ones seven eighths: the rest is for connections, so that newcomers
# with little to say get in.
_LARGE_BYTES: Final = 64 * 1024
_KEPT_FROM_LARGE: Final = 4
_KEPT_FROM_SMALL: Final = 8
# However much the tables hold, this part is left for peers.
_LEAST: Final = 8


class MemoryBudget:
    """Receive buffers, unsent answers and watches, in bytes; what is reserved has to be released.

    Small things that have to be accepted anyway are charged, whatever is left; large ones are reserved, or refused.
    """

    def __init__(
        self,
        total_bytes: int,
        tables_bytes: Callable[[], int] = lambda: 0,
        *,
        least_share_bytes: int = 0,
    ) -> None:
        self.total_bytes = total_bytes
        # what an address may have in any case, if there is so much: the largest frame, or full tables would refuse the
        # registration of a large broker for ever
        self._least_share_bytes = least_share_bytes
        # what peers hold now
        self.used_bytes = 0
        # and of that for being connected
        self._connections_bytes = 0
        self._tables_bytes = tables_bytes
        self._used_by: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<MemoryBudget [{self.used_bytes} of {self.peers_bytes()} bytes | {len(self._used_by)} addresses]>"

    def peers_bytes(self) -> int:
        """What peers may hold: all that the tables leave, and a part of it in any case."""
        return max(self.total_bytes - self._tables_bytes(), self.total_bytes // _LEAST)

    def reserve(self, address: str, size: int) -> bool:
        """Take so much for an address, unless there is not so much left for it."""
        peers = self.peers_bytes()
        if size > _LARGE_BYTES:
            room = shared = peers - peers // _KEPT_FROM_LARGE
        else:
            room, shared = peers - peers // _KEPT_FROM_SMALL, peers
        return self._take(address, size, room, shared)

    def let_in(self, address: str, size: int) -> bool:
        """Take what a connection costs; what is kept for that is there, whatever others were charged with."""
        room = peers = self.peers_bytes()
        if self._connections_bytes + size <= peers // _KEPT_FROM_SMALL:
            room = max(peers, self.used_bytes + size)
        is_in = self._take(address, size, room, peers)
        self._connections_bytes += size if is_in else 0
        return is_in

    def let_out(self, address: str, size: int) -> None:
        """Give back what a connection took."""
        self._connections_bytes -= size
        self.release(address, size)

    def _take(self, address: str, size: int, room: int, shared: int) -> bool:
        share = max(shared // _SHARE, self._least_share_bytes)
        if self.used_bytes + size > room or self._used_by[address] + size > share:
            return False
        self.charge(address, size)
        return True

    def charge(self, address: str, size: int) -> None:
        """Take so much for an address, whatever is left."""
        self.used_bytes += size
        used = self._used_by[address] + size
        if used:
            self._used_by[address] = used
        else:
            # whoever has nothing takes no place here, either
            self._used_by.pop(address, None)

    def release(self, address: str, size: int) -> None:
        """Give back what was taken."""
        self.charge(address, -size)
