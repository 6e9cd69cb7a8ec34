"""Memory account of one connection: the part of its network's share of the budget that the connection holds."""

from typing import Final

from namesrv.net.fairness.budget import LARGE_BYTES, MemoryBudget

# Requests up to this size are not charged, and as many waiting bytes are never refused.
SMALL_BYTES: Final = 4 * 1024


class MemoryAccount:
    """Counts the bytes of received input, unsent responses and TLS; the budget counts them for the peer's network.

    Memory for a large frame or response is reserved before it is received or sent; small ones are charged as waiting
    bytes. Reservations by `reserve` and charges by `charge_request` are not counted here: the caller releases them.
    """

    __slots__ = ("_budget", "_frame", "_input", "_network", "_records", "_reserved_unsent", "_tls", "_unsent")

    def __init__(self, budget: MemoryBudget, network: str) -> None:
        self._budget = budget
        self._network = network
        # bytes that are reserved for a large frame, or only for its received beginning while the frame itself waits for
        # memory
        self._frame = 0
        # bytes that are charged for other received input, and for TLS records that are not decrypted yet
        self._input = 0
        self._records = 0
        # bytes that are charged for unsent large responses, for unsent small ones, and reserved for TLS
        self._reserved_unsent = 0
        self._unsent = 0
        self._tls = 0

    def __repr__(self) -> str:
        received, unsent = self._frame + self._input + self._records, self._reserved_unsent + self._unsent
        return f"<MemoryAccount [{self._network} | {received} input | {unsent} unsent | {self._tls} TLS]>"

    def reserve(self, size: int) -> bool:
        """Reserve memory until `release`; False if the share of the peer's network has too little left."""
        return self._budget.reserve(self._network, size)

    def release(self, size: int) -> None:
        """Release memory."""
        self._budget.release(self._network, size)

    def has_room_for_waiting(self) -> bool:
        """False if no memory is left for waiting bytes."""
        return self._budget.has_room_for_waiting(self._network)

    def lacks_room_for(self, size: int) -> bool:
        """Whether `size` waiting bytes are more than a little, and no memory is left for them."""
        return size > SMALL_BYTES and not self.has_room_for_waiting()

    def charge_request(self, size: int) -> None:
        """Charge a request, even beyond the share of the peer's network; a negative size releases the charge."""
        if abs(size) > LARGE_BYTES:
            self._budget.charge(self._network, size)
        else:
            self._budget.charge_waiting(self._network, size)

    def reserve_frame(self, size: int, *, is_whole: bool) -> bool:
        """Reserve memory for a large frame in place of all charges for input; False if too little is left.

        While the whole frame waits for memory, its received beginning is reserved, by the rules for small amounts.
        After False nothing is charged: the caller reserves the beginning of the frame, or drops it.
        """
        self.set_input(0)
        self.release_frame()
        reserve = self._budget.reserve if is_whole else self._budget.reserve_as_small
        self._frame = size if reserve(self._network, size) else 0
        return self._frame > 0

    def release_frame(self) -> None:
        """Release the memory that is reserved for a large frame, if any."""
        if self._frame:
            self.release(self._frame)
            self._frame = 0

    def reserve_handshake_input(self, size: int) -> bool:
        """Reserve memory for received input in place of the current charge; False if too little is left."""
        self.set_input(0)
        if not self.reserve(size):
            return False
        # In place of the reservation, the same bytes are charged as input.
        self.release(size)
        self.set_input(size)
        return True

    def set_input(self, size: int) -> None:
        """Set the charge for received input, without a large frame for which memory is reserved."""
        if size != self._input:
            self._budget.charge_waiting(self._network, size - self._input)
            self._input = size

    def set_records(self, size: int) -> None:
        """Set the charge for TLS records that are not decrypted yet."""
        if size != self._records:
            self._budget.charge_waiting(self._network, size - self._records)
            self._records = size

    def charge_unsent(self, size: int, *, is_reserved: bool) -> None:
        """Charge an unsent response until `release_unsent`."""
        if is_reserved:
            self._reserved_unsent += size
            self._budget.charge(self._network, size)
        else:
            self._unsent += size
            self._budget.charge_waiting(self._network, size)

    def release_unsent(self) -> None:
        """Release the charges for unsent responses."""
        self._budget.release(self._network, self._reserved_unsent)
        self._budget.charge_waiting(self._network, -self._unsent)
        self._reserved_unsent = self._unsent = 0

    def reserve_tls(self, size: int) -> bool:
        """Reserve memory for TLS; False if too little is left."""
        is_reserved = self.reserve(size)
        if is_reserved:
            self._tls = size
        return is_reserved

    def shrink_tls(self, size: int) -> None:
        """Reduce the charge for TLS to at most `size`."""
        if self._tls > size:
            self.release(self._tls - size)
            self._tls = size

    def close(self) -> None:
        """Release all that is counted here: input, TLS records, unsent responses and TLS."""
        self.release_frame()
        self.set_input(0)
        self.set_records(0)
        self.release_unsent()
        self.shrink_tls(0)
