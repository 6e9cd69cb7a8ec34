"""Spans of wall time, and the notation of moments, in UTC like the folders of the logs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from namesrv_spark_jobs.history.moments import moment_ms

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
# the longest span: more than a week is unreadable on one screen, and slow to read
MOST_MS: Final = 7 * DAY_MS
# the shortest span: pages do not show finer times
LEAST_MS: Final = 1_000
# distances between the ticks of an axis
_STEPS_MS: Final = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12, 24, 48)),
)


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span from one moment up to, but without, another; milliseconds since 1970 UTC."""

    from_ms: int
    to_ms: int

    @classmethod
    def checked(cls, from_ms: int, to_ms: int) -> Self:
        """A span within the limits of what can be shown. Raises ValueError."""
        if to_ms - from_ms < LEAST_MS:
            raise ValueError(f"{written(to_ms)} is not after {written(from_ms)}")
        if to_ms - from_ms > MOST_MS:
            raise ValueError(f"{written(from_ms)} to {written(to_ms)} is longer than {MOST_MS // DAY_MS} days")
        return cls(from_ms, to_ms)

    @property
    def length_ms(self) -> int:
        """The length of the span."""
        return self.to_ms - self.from_ms

    def __contains__(self, other: object) -> bool:
        """True if another span, or a moment, lies within this one."""
        if isinstance(other, Span):
            return self.from_ms <= other.from_ms and other.to_ms <= self.to_ms
        return isinstance(other, int) and self.from_ms <= other < self.to_ms

    def moved(self, share: float) -> "Span":
        """The span moved by a share of its length, to a later time if that is positive."""
        by = round(self.length_ms * share)
        return Span(self.from_ms + by, self.to_ms + by)

    def zoomed(self, factor: float) -> "Span":
        """The span of `factor` times the length around the same middle, within the limits of what can be shown."""
        length = min(MOST_MS, max(LEAST_MS, round(self.length_ms * factor)))
        from_ms = self.from_ms + (self.length_ms - length) // 2
        return Span(from_ms, from_ms + length)

    def hours(self) -> "Span":
        """The smallest span of whole hours that contains this one."""
        return Span(self.from_ms // HOUR_MS * HOUR_MS, -(-self.to_ms // HOUR_MS) * HOUR_MS)

    def ticks(self, most: int = 8) -> list[int]:
        """Round moments within the span, at most `most` of them."""
        step = next((step for step in _STEPS_MS if self.length_ms <= step * most), _STEPS_MS[-1])
        return list(range(-(-self.from_ms // step) * step, self.to_ms, step))


def written(ms: int, *, precise: bool = True) -> str:
    """A moment in the notation of HTML forms, in UTC: 2026-03-01T03:01:52, with milliseconds unless they are 0."""
    text = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{ms % 1000:03}" if precise and ms % 1000 else text


def to_the_second(text: str) -> str:
    """A moment of a query in the only notation that the field of a form accepts; empty if it is not a moment."""
    try:
        return written(moment_ms(text), precise=False)
    except ValueError:
        return ""


def tick_texts(span: Span) -> Iterator[tuple[int, str]]:
    """The ticks of an axis, each with the part of its date and time that distinguishes it from its neighbours."""
    ticks = span.ticks()
    step = ticks[1] - ticks[0] if len(ticks) > 1 else span.length_ms
    day = ""
    for tick in ticks:
        date, time = datetime.fromtimestamp(tick // 1000, UTC).strftime("%m-%d %H:%M:%S").split()
        text = time if step < MINUTE_MS else time[:5]
        if step < 1000:  # noqa: PLR2004 - milliseconds of a second
            text += f".{tick % 1000 // 100}"
        yield tick, text if date == day else f"{date} {text}"
        day = date
