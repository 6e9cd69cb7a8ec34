"""Charts of the traffic of each server, from samples of its counters. Pure functions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, Self

from namesrv_console.state import ServerView
from namesrv_remoting.bodies.extensions import Traffic

# Size of a chart in its own units, which the page stretches.
WIDTH: Final = 300.0
HEIGHT: Final = 50.0
SPAN_SECONDS: Final = 900.0
# A line ends where samples are missing for longer than this.
_GAP_SECONDS: Final = 12.0


class Sample(NamedTuple):
    """The counters of one boot of a server at one moment of the console's clock."""

    at: float
    boot_id: str
    connections: int
    traffic: Traffic

    @classmethod
    def of(cls, view: ServerView) -> Self | None:
        """A sample of what a server has just reported; None without a report."""
        info = view.info
        if not view.is_reachable or info is None or info.traffic is None or view.answered_at is None:
            return None
        return cls(view.answered_at, info.boot_id, info.connections, info.traffic)


class Reading(NamedTuple):
    """A value of a measure."""

    value: float
    # True: the value is only known to be larger than this.
    is_exceeded: bool = False


# Reading of a measure between two samples; None if it is unknown.
_Value = Callable[[Sample, Sample], Reading | None]


def _per_second(counter: Callable[[Traffic], int]) -> _Value:
    return lambda old, new: Reading((counter(new.traffic) - counter(old.traffic)) / (new.at - old.at))


def _p99_ms(old: Sample, new: Sample) -> Reading | None:
    """The bound of the response times within which 99 % of the responses between two samples are."""
    before, after, bounds = old.traffic.response_counts, new.traffic.response_counts, new.traffic.response_bounds
    if len(before) != len(after) or len(after) != len(bounds) + 1:
        return None
    sums = list(accumulate(late - early for early, late in zip(before, after, strict=True)))
    if sums[-1] <= 0:
        return None
    at = next(number for number, count in enumerate(sums) if count >= 0.99 * sums[-1])
    if at < len(bounds):
        return Reading(1000 * bounds[at])
    return Reading(1000 * bounds[-1], is_exceeded=True) if bounds else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of charts."""

    # Key of its text.
    name: str
    unit: str
    value: _Value


MEASURES: Final = (
    Measure("requests", "/s", _per_second(lambda it: it.requests)),
    Measure("heartbeats", "/s", _per_second(lambda it: it.heartbeats)),
    Measure("registrations", "/s", _per_second(lambda it: it.registrations)),
    Measure("evictions", "/s", _per_second(lambda it: it.evictions)),
    Measure("p99", "ms", _p99_ms),
    Measure("connections", "", lambda _, new: Reading(new.connections)),
    Measure("memory", "MB", lambda _, new: Reading(new.traffic.memory_bytes / 1e6)),
)


@dataclass(frozen=True, slots=True)
class Chart:
    """One measure of one server: lines in the units of the picture, and the newest and the largest value as text."""

    measure: Measure
    lines: Sequence[str]
    # None: the server has not reported a value for a while.
    newest: str | None
    largest: str


def charts(samples: Mapping[str, Sequence[Sample]], now: float) -> dict[str, list[Chart]]:
    """Address -> a chart of each measure; charts of one measure have the same scale on all servers."""
    found: dict[str, list[Chart]] = {address: [] for address in samples}
    for measure in MEASURES:
        points = {address: list(_points(each, measure, now)) for address, each in samples.items()}
        top = max((one.value for each in points.values() for _, one in each if one is not None), default=0.0)
        for address, each in points.items():
            found[address].append(_chart(measure, each, top, now))
    return found


def _points(samples: Iterable[Sample], measure: Measure, now: float) -> Iterator[tuple[float, Reading | None]]:
    """Times and readings; None where the line is interrupted."""
    for old, new in pairwise(samples):
        if new.at < now - SPAN_SECONDS or new.at <= old.at:
            continue
        is_broken = new.boot_id != old.boot_id or new.at - old.at > _GAP_SECONDS
        yield new.at, None if is_broken else measure.value(old, new)


def _chart(measure: Measure, points: Sequence[tuple[float, Reading | None]], top: float, now: float) -> Chart:
    lines: list[list[str]] = [[]]
    for at, reading in points:
        if reading is None:
            lines.append([])
        else:
            x = WIDTH * (at - now + SPAN_SECONDS) / SPAN_SECONDS
            lines[-1].append(f"{x:.1f},{HEIGHT - HEIGHT * reading.value / top if top else HEIGHT:.1f}")
    known = [reading for _, reading in points if reading is not None]
    is_current = bool(points) and now - points[-1][0] <= _GAP_SECONDS and points[-1][1] is not None
    return Chart(
        measure,
        [" ".join(line) for line in lines if line],
        _text(known[-1], measure.unit) if is_current else None,
        _text(max(known, default=Reading(0.0)), measure.unit),
    )


def _text(reading: Reading, unit: str) -> str:
    value = reading.value
    digits = 0 if value == int(value) else 1 if value >= 1 else 3
    number = f"{'> ' if reading.is_exceeded else ''}{value:,.{digits}f}"
    return f"{number}{unit}" if unit == "/s" else f"{number} {unit}".rstrip()
