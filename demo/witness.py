"""Record of what each part of the demo noticed, and when."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# (broker name, broker id)
Instance = tuple[str, int]
_COLUMN = 11


class NothingCameError(Exception):
    """What the demo waited for did not happen; the message says what that was."""


@dataclass(slots=True)
class Loss:
    """One broker that was taken away, and how long it was until each of those who should know did."""

    what: str
    instance: Instance
    began: float
    # NameServer or client -> seconds
    noticed: dict[str, float] = field(default_factory=dict)


class Witness:
    """Writes down what servers and clients notice of the losses, and lets others wait for it."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self._news = asyncio.Event()

    def begin(self, what: str, instance: Instance) -> Loss:
        """From now on this broker is gone, or about to be."""
        self.losses.append(Loss(what, instance, time.monotonic()))
        return self.losses[-1]

    def noticed(self, who: str, instance: Instance) -> float | None:
        """Somebody has noticed a loss: seconds since it began, or None if it is none of ours, or told twice."""
        for loss in reversed(self.losses):
            if loss.instance == instance:
                return None if who in loss.noticed else loss.noticed.setdefault(who, time.monotonic() - loss.began)
        return None

    def tell(self) -> None:
        """Something has happened: whoever waits looks again."""
        self._news.set()

    async def until(self, what: str, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait until something is so.

        Raises:
            NothingCameError: it is not so in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise NothingCameError(f"{what}: not within {seconds:g} s") from None

    def table(self, names: list[str], bound_seconds: float) -> list[str]:
        """All losses, one per line, in seconds."""
        width = max(len(loss.what) for loss in self.losses) + 2 if self.losses else 0
        head = " " * width + "".join(f"{name:>{_COLUMN}}" for name in names)
        lines = [
            f"{loss.what:<{width}}" + "".join(f"{_seconds(loss.noticed.get(name)):>{_COLUMN}}" for name in names)
            for loss in self.losses
        ]
        return [head, *lines, f"at most, by the settings: {bound_seconds:.2f} s"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
