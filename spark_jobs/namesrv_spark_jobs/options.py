"""Options of an analysis, and the grid of settings it replays (--what-if)."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_GRID: Final = "expiry=30,60,120 scan=5,10 poll=5,30"
# every combination of expiry, scan and poll replays the whole log
MOST_REPLAYS: Final = 200
_AXES: Final = ("expiry", "scan", "poll")
# a day: no sensible expiry, scan or poll is longer
_MOST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The grid of settings for replays: every combination of expiry, scan and poll."""

    # the expiry of brokers that use the server's expiry; a broker that requested an expiry of its own keeps it
    expiry_ms: tuple[int, ...] = (30_000, 60_000, 120_000)
    scan_ms: tuple[int, ...] = (5_000, 10_000)
    poll_ms: tuple[int, ...] = (5_000, 30_000)

    def __post_init__(self) -> None:
        """Raise ValueError when the grid has too many combinations."""
        if self.replays > MOST_REPLAYS:
            raise ValueError(f"{self.replays} combinations of settings, limit {MOST_REPLAYS}")

    @property
    def replays(self) -> int:
        """The number of combinations."""
        return len(self.expiry_ms) * len(self.scan_ms) * len(self.poll_ms)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The selection of events, and the settings of the analysis."""

    # lines with since_ms <= ts_ms < until_ms count; earlier `start`, `opened` and `late` lines of a boot are read, too
    since_ms: int | None = None
    until_ms: int | None = None
    # empty: all. Topics select routes and clients, not brokers.
    clusters: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    # the interval at which clients poll for routes, which is in no NameServer's log
    poll_ms: int = 30_000
    what_if: WhatIf = field(default_factory=WhatIf)
    # replace addresses, agents and clients by digests
    redact: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError when the options exclude every line."""
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ValueError("--until is not after --since: no line would count")


def parse_grid(text: str) -> WhatIf:
    """Parse --what-if; an axis without values keeps its default. Raises ValueError with the offending part."""
    axes: dict[str, tuple[int, ...]] = {}
    for part in text.split():
        name, equals, values = part.partition("=")
        if not equals or name not in _AXES:
            raise ValueError(f"{part!r} is not AXIS=VALUES with one of {', '.join(_AXES)} (for example {DEFAULT_GRID})")
        field_name = f"{name}_ms"
        if field_name in axes:
            raise ValueError(f"{text!r} names an axis more than once")
        # a repeated value counts once, also in another notation
        axes[field_name] = tuple(dict.fromkeys(_value(name, value) for value in values.split(",") if value))
    grid = WhatIf(**axes)
    if not grid.replays:
        raise ValueError(f"{text!r} leaves no combination of settings to replay")
    return grid


def _value(name: str, text: str) -> int:
    """A value of an axis, given in seconds, in milliseconds."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a number") from None
    if not 0 < value <= _MOST_SECONDS:
        raise ValueError(f"{name}: {text} is not over 0 and at most {_MOST_SECONDS:g} seconds")
    return max(1, round(value * 1000))
