"""How do times get from text to milliseconds, and back to text that people read?"""

import re
from datetime import UTC, datetime
from typing import Final

# what a duration may end with, in milliseconds; none means seconds
UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
# up to five minutes people think in seconds: 160 s
_IN_SECONDS_MS: Final = 300_000
_IN_DAYS_MS: Final = 172_800_000
# of what there is none
NONE: Final = "\N{EN DASH}"
_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h)?")
# five digits are a year with something wrong, thirteen are milliseconds
_MILLISECONDS: Final = re.compile(r"\d{9,}")


def duration_ms(text: str) -> float:
    """`45`, `45s`, `1500ms`, `2m`, `1.5h` in milliseconds.

    Raises:
        ValueError: it is none of these.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; say 45, 45s, 1500ms, 2m or 1h")
    return float(match["number"]) * UNITS[match["unit"] or "s"]


def moment_ms(text: str) -> int:
    """`2026-03-01`, `2026-03-01T07:30`, with or without a zone (UTC), or milliseconds since 1970.

    Raises:
        ValueError: it is none of these.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; say 2026-03-01, 2026-03-01T07:30 (UTC) or milliseconds") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def shown_duration(ms: float | None) -> str:
    """Short, and exact enough: `640 ms`, `4.2 s`, `118 s`, `3 min 20 s`, `2 h 5 min`; a dash for none."""
    if ms is None:
        return NONE
    if ms < UNITS["s"]:
        return f"{ms:.0f} ms"
    if ms < _IN_SECONDS_MS:
        # 99.95 would be shown as 100.0
        return f"{ms / 1000:.1f} s" if ms < 99_950 else f"{ms / 1000:.0f} s"  # noqa: PLR2004
    if ms >= _IN_DAYS_MS:
        return f"{ms / 86_400_000:.1f} d"
    if round(ms / 1000) * 1000 < UNITS["h"]:
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
