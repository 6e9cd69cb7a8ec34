"""Options of an analysis, and the grid of settings it replays (--what-if)."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_GRID: Final = "expiry=30,60,120 scan=5,10 poll=5,30"
# every policy with every scan and every poll is a replay of the whole log
MOST_REPLAYS: Final = 200
_AXES: Final = ("expiry", "scan", "poll")
# a day: beyond it nobody expires, scans or polls
_MOST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The grid of settings that the heartbeats are replayed under: every policy with every scan and every poll."""

    # how long a broker may be silent, for brokers that asked for no time of their own
    expiry_ms: tuple[int, ...] = (30_000, 60_000, 120_000)
    scan_ms: tuple[int, ...] = (5_000, 10_000)
    poll_ms: tuple[int, ...] = (5_000, 30_000)

    def __post_init__(self) -> None:
        """Raise ValueError when the grid would take for ever."""
        if self.replays > MOST_REPLAYS:
            raise ValueError(f"{self.replays} combinations of settings, limit {MOST_REPLAYS}")

    @property
    def replays(self) -> int:
        """How many combinations there are."""
        return len(self.expiry_ms) * len(self.scan_ms) * len(self.poll_ms)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is analysed, and how."""

    # lines with since_ms <= ts_ms < until_ms count; settings are taken from earlier `start` and `opened` lines, too
    since_ms: int | None = None
    until_ms: int | None = None
    # empty: all of them. A topic narrows what is said of routes and clients, not of brokers.
    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    # how often clients ask for routes, which no NameServer's log says
    poll_ms: int = 30_000
    what_if: WhatIf = field(default_factory=WhatIf)
    # digests take the place of addresses, agents and clients
    redact: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError when no line can meet them."""
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ValueError("--until is not after --since: no line would count")


def parse_grid(text: str) -> WhatIf:
    """Parse --what-if; an axis that is not named has its default; ValueErrors say what is wrong."""
    axes: dict[str, tuple[int, ...]] = {}
    for part in text.split():
        name, equals, values = part.partition("=")
        if not equals or name not in _AXES:
            raise ValueError(f"{part!r} is not AXIS=VALUES with one of {', '.join(_AXES)} (for example {DEFAULT_GRID})")
        field_name = f"{name}_ms"
        if field_name in axes:
            raise ValueError(f"{text!r} names an axis more than once")
        # a value that is named twice is one
        axes[field_name] = tuple(_value(name, value) for value in dict.fromkeys(values.split(",")) if value)
    grid = WhatIf(**axes)
    if not grid.replays:
        raise ValueError(f"{text!r} leaves no combination of settings to replay")
    return grid


def _value(name: str, text: str) -> int:
    """Milliseconds."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a number") from None
    if not 0 < value <= _MOST_SECONDS:
        raise ValueError(f"{name}: {text} is not between 0 and {_MOST_SECONDS:g}")
    return max(1, round(value * 1000))
