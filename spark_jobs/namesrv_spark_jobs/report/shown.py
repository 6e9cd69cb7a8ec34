"""Durations, moments and names as people read them, on the page and on a terminal."""

from datetime import UTC, datetime
from typing import Final

# of what there is none
NONE: Final = "\N{EN DASH}"
# up to five minutes people think in seconds: 160 s
_IN_SECONDS_MS: Final = 300_000
_SECOND_MS: Final = 1000
_IN_HOURS_MS: Final = 3_600_000
_IN_DAYS_MS: Final = 172_800_000


def printable(text: str) -> str:
    """A name from a log, with the characters that a terminal or a browser would obey spelt out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown_duration(ms: float | None) -> str:
    """Short, and exact enough: `640 ms`, `4.2 s`, `118 s`, `3 min 20 s`, `2 h 5 min`; a dash for none."""
    if ms is None:
        return NONE
    if ms < _SECOND_MS:
        return f"{ms:.0f} ms"
    if ms < _IN_SECONDS_MS:
        # 99.95 would be shown as 100.0
        return f"{ms / 1000:.1f} s" if ms < 99_950 else f"{ms / 1000:.0f} s"  # noqa: PLR2004
    if ms >= _IN_DAYS_MS:
        return f"{ms / 86_400_000:.1f} d"
    if round(ms / 1000) * 1000 < _IN_HOURS_MS:
        return _pair(round(ms / 1000), "min", "s")
    return _pair(round(ms / 60_000), "h", "min")


def _pair(small: int, whole: str, part: str) -> str:
    """`3 min 20 s`, and `3 min` when no seconds are left."""
    wholes, parts = divmod(small, 60)
    return f"{wholes} {whole} {parts} {part}" if parts else f"{wholes} {whole}"


def shown_moment(ms: int | None) -> str:
    """In UTC, to the second; a dash for none."""
    if ms is None:
        return NONE
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
