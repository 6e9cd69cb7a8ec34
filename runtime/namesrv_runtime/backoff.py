"""Back-off after failed connects: full jitter, doubling up to a maximum."""

from dataclasses import dataclass
from typing import Final

# Doublings are bounded so that the power of 2 stays a finite float; the maximum pause is reached long before.
_MAX_DOUBLINGS: Final = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: a pause is a random part of a bound that doubles with each failure in a row, up to a maximum.

    A thousand clients that lost the same server reconnect spread over the whole time, not in waves.
    """

    base_seconds: float = 0.2
    max_seconds: float = 10.0

    def pause_seconds(self, failures: int, random_unit: float) -> float:
        """The pause after that many failures in a row; `random_unit` is from 0 to 1."""
        return random_unit * min(self.max_seconds, self.base_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))


DEFAULT_BACKOFF: Final = Backoff()


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """A failed connect: its cause and time, the number of failures in a row, and the time of the next attempt."""

    cause: Exception
    # The cause in words.
    reason: str
    at: float
    failures: int
    retry_at: float

    def since(self, now: float) -> str:
        """The error message for callers during the pause."""
        return f"{self.reason}, {now - self.at:.1f} s ago; next attempt in {self.retry_at - now:.1f} s"
