"""Moments of wall time, as people write them."""

import re
from datetime import UTC, datetime
from typing import Final

# the year 2200, as in the report: no wall clock time is later
_LATEST_MS: Final = 7_258_118_400_000
# nine digits and more are milliseconds; fewer are a mistyped date
_MILLISECONDS: Final = re.compile(r"\d{9,15}")


def moment_ms(text: str) -> int:
    """Parse `2026-03-01T03:01:52`, also without seconds or time, or milliseconds since 1970. Raises ValueError.

    A time without a zone is in UTC.
    """
    if _MILLISECONDS.fullmatch(text):
        milliseconds = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(f"not a valid time: {text!r} (for example 2026-03-01T03:01:52, in UTC)") from None
        milliseconds = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= milliseconds <= _LATEST_MS:
        raise ValueError(f"not a valid time: {text!r} (from 1970 to 2200)")
    return milliseconds
