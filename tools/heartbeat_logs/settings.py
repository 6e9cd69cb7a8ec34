"""Settings of the generator: the fleet whose log is written, and what goes wrong in it."""

from dataclasses import dataclass
from typing import Final

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
# 2026-03-01 00:00:00 UTC
BEGIN: Final = 1_772_323_200 * SECOND


@dataclass(frozen=True, slots=True)
class Settings:
    """All times are microseconds, all counts are those of the whole run unless said otherwise."""

    seed: int = 1
    begin: int = BEGIN
    duration: int = HOUR
    nameservers: int = 2
    brokers: int = 100
    # of one broker group: id 0 is the master
    members: int = 2
    clusters: int = 2
    clients: int = 50
    heartbeat: int = 30 * SECOND
    expiry: int = 120 * SECOND
    scan: int = 5 * SECOND
    poll: int = 30 * SECOND
    # of all beats, that come from the first broker
    skew: float = 0.0
    # of the period, by which a beat or poll is later than the clock says, at most
    jitter: float = 0.0
    # of the beats, that do not arrive
    missed: float = 0.0
    # of the brokers, that say which process they are
    native: float = 0.5
    # deaths per broker and day, and what they are, by weight
    deaths: float = 2.0
    crash: float = 4.0
    silence: float = 3.0
    unregister: float = 2.0
    false_silence: float = 1.0
    # how long a connection of a client lasts on average; 0: for ever
    session: int = 0
    # of each server
    restarts: int = 0
    clock_steps: int = 0
    lates: int = 0
    # restarts are crashes that tear the last line, and the last file stays open
    torn: bool = False
    # of the lines, that are written twice
    duplicates: float = 0.0
    # of the lines, that are told after others which happened later
    told_late: float = 0.0
    gzip: bool = True
    # of the heartbeat log: 1 or 2
    log_version: int = 2

    def __post_init__(self) -> None:
        """Refuse what does not make a fleet.

        Raises:
            ValueError: with what is wrong.
        """
        for name in ("skew", "missed"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a part of all beats, from 0 to less than 1: {getattr(self, name)}")
        if min(self.heartbeat, self.scan, self.poll, self.expiry) < SECOND // 100:
            raise ValueError("no period is shorter than 0.01 s")

    @property
    def end(self) -> int:
        """When the log ends."""
        return self.begin + self.duration

    @property
    def chatty_heartbeat(self) -> int:
        """The period of the broker that has more than its share."""
        if not self.skew or self.brokers < 2:  # noqa: PLR2004 - alone it has all of them
            return self.heartbeat
        return max(1000, round(self.heartbeat * (1 - self.skew) / self.skew / (self.brokers - 1)))

    @property
    def lines_per_second(self) -> float:
        """Of all servers together: beats and scans."""
        beats = (self.brokers - 1) / self.heartbeat + 1 / self.chatty_heartbeat
        return self.nameservers * (beats * (1 - self.missed) + 1 / self.scan) * SECOND
