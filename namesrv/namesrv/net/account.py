"""Memory account of one connection: what it holds of its address's share of the budget."""

from namesrv.net.budget import MemoryBudget


class MemoryAccount:
    """Received input, unsent responses and TLS, in bytes, and whatever else is reserved on the peer's behalf."""

    __slots__ = ("_budget", "_input", "_network", "_tls", "_unsent")

    def __init__(self, budget: MemoryBudget, network: str) -> None:
        self._budget = budget
        self._network = network
        # how much is charged for each
        self._input = 0
        self._unsent = 0
        self._tls = 0

    def __repr__(self) -> str:
        return f"<MemoryAccount [{self._network} | {self._input} input | {self._unsent} unsent | {self._tls} TLS]>"

    def reserve(self, size: int) -> bool:
        """Take memory, unless there is not enough left for the peer's address; `release` gives it back."""
        return self._budget.reserve(self._network, size)

    def charge(self, size: int) -> None:
        """Take memory, whatever is left; `release` gives it back."""
        self._budget.charge(self._network, size)

    def release(self, size: int) -> None:
        """Give memory back."""
        self._budget.release(self._network, size)

    def reserve_input(self, size: int) -> bool:
        """Take memory for a frame whose header is here, instead of what is charged for input now."""
        self.charge_input(0)
        is_reserved = self.reserve(size)
        if is_reserved:
            self._input = size
        return is_reserved

    def charge_input(self, size: int) -> None:
        """Charge so much for received input from now on."""
        if size != self._input:
            self.charge(size - self._input)
            self._input = size

    def charge_unsent(self, size: int) -> None:
        """Charge so much for unsent responses from now on."""
        self.charge(size - self._unsent)
        self._unsent = size

    def add_unsent(self, size: int) -> None:
        """Charge so much more for unsent responses."""
        self.charge_unsent(self._unsent + size)

    def reserve_tls(self, size: int) -> bool:
        """Take memory for TLS, unless there is not enough left."""
        is_reserved = self.reserve(size)
        if is_reserved:
            self._tls = size
        return is_reserved

    def limit_tls(self, size: int) -> None:
        """Charge no more than so much for TLS from now on."""
        if self._tls > size:
            self.release(self._tls - size)
            self._tls = size

    def close(self) -> None:
        """Give back what is charged for input, unsent responses and TLS."""
        self.charge_input(0)
        self.charge_unsent(0)
        self.limit_tls(0)
