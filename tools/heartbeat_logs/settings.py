"""Settings of the generator: the simulated fleet and its faults."""

from dataclasses import dataclass
from typing import Final

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
# 2026-03-01 00:00:00 UTC
BEGIN: Final = 1_772_323_200 * SECOND
HEARTBEAT: Final = 30 * SECOND


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings; times are in microseconds, and counts are totals unless the comment names another unit."""

    seed: int = 1
    duration: int = HOUR
    nameservers: int = 2
    brokers: int = 100
    clients: int = 50
    expiry: int = 120 * SECOND
    scan: int = 5 * SECOND
    poll: int = 30 * SECOND
    # Share of all heartbeats that come from the first broker.
    skew: float = 0.0
    # Largest delay of a heartbeat or poll, as a share of its interval.
    jitter: float = 0.0
    # Share of the heartbeats that do not arrive.
    missed: float = 0.0
    # Share of the brokers with an agent id.
    native: float = 0.5
    # Deaths per broker and day.
    deaths: float = 2.0
    # Weight of false silences among deaths; the other kinds have 9 together.
    false_silence: float = 1.0
    # Average duration of a client's connection; 0: until the end.
    session: int = 0
    # Counts for each server.
    restarts: int = 0
    clock_steps: int = 0
    lates: int = 0
    # True: restarts are crashes that cut the last line, and the last file stays open.
    torn: bool = False
    # Share of the lines that are written twice.
    duplicates: float = 0.0
    # Share of the lines that are written after a later event.
    out_of_order: float = 0.0

    def __post_init__(self) -> None:
        """Validate the values. Raises ValueError."""
        for name in ("skew", "missed"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be a share from 0 to less than 1: {getattr(self, name)}")
        if min(self.scan, self.poll, self.expiry) < SECOND // 100:
            raise ValueError("no period is shorter than 0.01 s")

    @property
    def end(self) -> int:
        """End of the log."""
        return BEGIN + self.duration

    @property
    def chatty_heartbeat(self) -> int:
        """The interval of the first broker, which `skew` makes shorter than that of the other brokers."""
        if not self.skew or self.brokers < 2:  # noqa: PLR2004 - a single broker sends all heartbeats
            return HEARTBEAT
        return max(1000, round(HEARTBEAT * (1 - self.skew) / self.skew / (self.brokers - 1)))

    @property
    def lines_per_second(self) -> float:
        """Lines per second of all servers together: heartbeats and scans."""
        heartbeats = (self.brokers - 1) / HEARTBEAT + 1 / self.chatty_heartbeat
        return self.nameservers * (heartbeats * (1 - self.missed) + 1 / self.scan) * SECOND
