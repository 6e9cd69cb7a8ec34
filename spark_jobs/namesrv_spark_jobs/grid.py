"""What does --what-if mean? `expiry=30,60,120 scan=5,10 poll=5,30 phi=5,8,12`."""

from typing import Final

from namesrv_spark_jobs.options import WhatIf

DEFAULT_GRID: Final = "expiry=30,60,120 scan=5,10 poll=5,30 phi=5,8,12"
# every policy with every scan and every poll is a replay of the whole log
MOST_REPLAYS: Final = 200
_AXES: Final = ("expiry", "scan", "poll", "phi")
# a day: beyond it nobody expires, scans or polls
_MOST_SECONDS: Final = 86_400.0
# thresholds beyond it need a deviation of more than any clock tells
_MOST_PHI: Final = 100.0


def parse_grid(text: str) -> WhatIf:
    """Read it; an axis that is not named has its default, `phi=` has none.

    Raises:
        ValueError: it is no grid, with what is wrong.
    """
    axes = dict(_axis(part) for part in f"{DEFAULT_GRID} {text}".split())
    named = [part.partition("=")[0] for part in text.split()]
    if len(named) != len(set(named)):
        raise ValueError(f"{text!r} names an axis twice")
    grid = WhatIf(
        expiry_ms=_milliseconds("expiry", axes["expiry"]),
        scan_ms=_milliseconds("scan", axes["scan"]),
        poll_ms=_milliseconds("poll", axes["poll"]),
        phi=tuple(_value("phi", value, _MOST_PHI) for value in axes["phi"]),
    )
    replays = (len(grid.expiry_ms) + len(grid.phi)) * len(grid.scan_ms) * len(grid.poll_ms)
    if not 0 < replays <= MOST_REPLAYS:
        raise ValueError(f"{text!r} makes {replays} combinations; 1 to {MOST_REPLAYS} are allowed")
    return grid


def _axis(part: str) -> tuple[str, list[str]]:
    name, equals, values = part.partition("=")
    if not equals or name not in _AXES:
        raise ValueError(f"{part!r} is no axis; say {DEFAULT_GRID}")
    # a value that is named twice is one
    return name, list(dict.fromkeys(value for value in values.split(",") if value))


def _milliseconds(name: str, values: list[str]) -> tuple[int, ...]:
    return tuple(max(1, round(_value(name, value, _MOST_SECONDS) * 1000)) for value in values)


def _value(name: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is no number") from None
    if not 0 < value <= most:
        raise ValueError(f"{name}: {text} is not between 0 and {most:g}")
    return value
