"""Liveness seconds: the monotonic clock without the time in which this process could not have heard anybody."""

from collections.abc import Callable


class LivenessClock:
    """What brokers' silence is measured with; `late_seconds` grows when this process was held up."""

    __slots__ = ("late_seconds", "monotonic")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        # all the time that counts as nobody's silence
        self.late_seconds = 0.0

    def now(self) -> float:
        """Liveness seconds."""
        return self.monotonic() - self.late_seconds

    def __repr__(self) -> str:
        return f"<LivenessClock [{self.now():.3f} s | {self.late_seconds:.3f} s late]>"
