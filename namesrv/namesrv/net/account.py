"""Memory account of one connection: the part of its network's share of the budget that the connection holds."""

from namesrv.net.budget import MemoryBudget


class MemoryAccount:
    """Counts the bytes of received input, unsent responses and TLS, and of other reservations for the peer."""

    __slots__ = ("_budget", "_input", "_network", "_records", "_tls", "_unsent")

    def __init__(self, budget: MemoryBudget, network: str) -> None:
        self._budget = budget
        self._network = network
        # bytes that are charged for received input, for TLS records that are not decrypted yet, for unsent responses,
        # and for TLS itself
        self._input = 0
        self._records = 0
        self._unsent = 0
        self._tls = 0

    def __repr__(self) -> str:
        received = self._input + self._records
        return f"<MemoryAccount [{self._network} | {received} input | {self._unsent} unsent | {self._tls} TLS]>"

    def reserve(self, size: int) -> bool:
        """Reserve memory until `release`; False if the share of the peer's network has too little left."""
        return self._budget.reserve(self._network, size)

    def release(self, size: int) -> None:
        """Release memory."""
        self._budget.release(self._network, size)

    def has_room_for_waiting(self) -> bool:
        """False if no memory is left for waiting bytes: received input, and unsent responses."""
        return self._budget.has_room_for_waiting(self._network)

    def charge_request(self, size: int) -> None:
        """Charge a request, even beyond the share of the peer's network; a negative size releases the charge."""
        self._budget.charge_waiting(self._network, size)

    def reserve_input(self, size: int) -> bool:
        """Reserve memory for a frame whose header was received, in place of the current charge for input.

        False if too little is left; then no input is charged.
        """
        self.set_input(0)
        if not self.reserve(size):
            return False
        # In place of the reservation, the same bytes are charged as input.
        self.release(size)
        self.set_input(size)
        return True

    def set_input(self, size: int) -> None:
        """Set the charge for received input."""
        if size != self._input:
            self._budget.charge_waiting(self._network, size - self._input)
            self._input = size

    def set_records(self, size: int) -> None:
        """Set the charge for TLS records that are not decrypted yet."""
        if size != self._records:
            self._budget.charge_waiting(self._network, size - self._records)
            self._records = size

    def set_unsent(self, size: int) -> None:
        """Set the charge for unsent responses."""
        self._budget.charge_waiting(self._network, size - self._unsent)
        self._unsent = size

    def add_unsent(self, size: int) -> None:
        """Increase the charge for unsent responses."""
        self.set_unsent(self._unsent + size)

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
        """Release the charges for input, TLS records, unsent responses and TLS."""
        self.set_input(0)
        self.set_records(0)
        self.set_unsent(0)
        self.shrink_tls(0)
