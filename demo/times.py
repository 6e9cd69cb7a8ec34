"""The demo's time scale: how much faster than in reality everything goes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a real system that are a matter of half minutes and more, all divided by one factor."""

    factor: float

    @property
    def heartbeat_seconds(self) -> float:
        """Between two heartbeats of a broker: 30 s."""
        return 30 / self.factor

    @property
    def expiry_seconds(self) -> float:
        """The silence after which a broker is evicted: 120 s."""
        return 120 / self.factor

    @property
    def scan_seconds(self) -> float:
        """Between two searches for silent brokers: 10 s."""
        return 10 / self.factor

    @property
    def poll_seconds(self) -> float:
        """Between two polls of a client: 30 s."""
        return 30 / self.factor

    @property
    def warm_up_seconds(self) -> float:
        """How long a server that has just started waits for its brokers, and clients distrust what it lacks: 45 s."""
        return 45 / self.factor

    @property
    def drain_seconds(self) -> float:
        """Over which a NameServer that leaves closes its connections: 5 s."""
        return 5 / self.factor

    @property
    def bound_seconds(self) -> float:
        """How long a client can see a dead broker at most: expiry, scan and poll, 160 s."""
        return self.expiry_seconds + self.scan_seconds + self.poll_seconds
