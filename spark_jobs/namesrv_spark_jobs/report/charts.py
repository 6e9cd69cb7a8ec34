"""Charts of the page: where everything stands, and what is written on it; templates/charts.html draws them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

from namesrv_spark_jobs.report.shown import shown_duration, shown_moment

Row = Mapping[str, Any]
# a place on an axis, and what is written there
Tick = tuple[float, str]
# left, top, width, height, class, and what a browser shows under the pointer
Box = tuple[float, float, float, float, str, str]

# a screen and a phone: a picture that is only made smaller has letters that nobody can read
WIDE: Final = 920
NARROW: Final = 380

# round numbers of milliseconds on an axis, as people say them
_DURATIONS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 2_592_000_000),
)
# between ticks of a clock: seconds to weeks
_CLOCK_STEPS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 1_209_600_000, 2_592_000_000),
)
_THOUSANDS: Final = ("", " k", " M", " G", " T")
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
# a curve that spans more than that shows its last part only: what matters is on the right
_MOST_SPAN: Final = 100_000
# two thirds of the expiry: as docs/staleness.md has it
_NEAR_MISS_PERCENT: Final = 200 / 3
# width of a letter of a label, at most (bold ones of DejaVu are wide), and on average
_WIDEST_LETTER: Final = 9.0
_LETTER: Final = 7
_LINE: Final = 15
# more names than that are a grey mass: the best settings and the logged ones keep theirs
_MOST_LABELS: Final = {False: 26, True: 6}
# from there on single evictions are not told apart any more
_MOST_LINEAR: Final = 20


@dataclass(frozen=True)
class Scale:
    """From values in [low, high] to places in [start, end]."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The place of a value; what is outside lies on the edge."""
        low, here, high = (
            math.log(max(one, 1e-9)) if self.logarithmic else one
            for one in (self.low, min(max(value, self.low), self.high), self.high)
        )
        return self.start + ((here - low) / (high - low) if high > low else 0.5) * (self.end - self.start)


class Label(NamedTuple):
    """Words that begin, are centred (`middle`) or end at a place."""

    x: float
    y: float
    words: str
    kind: str
    anchor: str

    @property
    def left(self) -> float:
        """Where it begins, at the outermost."""
        return self.x - len(self.words) * _WIDEST_LETTER if self.anchor == "end" else self.x

    @property
    def right(self) -> float:
        """Where it ends, at the outermost."""
        return self.left + len(self.words) * _WIDEST_LETTER


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One drawing; the template knows what `parts` are."""

    width: int
    height: int
    # what is to be seen in it, for those who cannot see it
    description: str
    across: Scale
    up: Scale
    rows: Sequence[Tick] = ()
    columns: Sequence[Tick] = ()
    parts: Mapping[str, Any]


def staleness(charts: Row, marks: Mapping[str, Mapping[str, float]], width: int) -> Chart:
    """The curves over a logarithmic time axis, with these percentiles marked, and the bound."""
    height = 300 if width <= NARROW else 370
    curves = {kind: charts[f"{kind}_cdf"] for kind in ("client", "registry") if charts[f"{kind}_cdf"]}
    bound = charts["bound_ms"]
    low, high = _span([bound, *(ms for curve in curves.values() for ms, _ in curve)])
    across = Scale(low, high, 44, width - 16, logarithmic=True)
    up = Scale(0, 1, height - 46, 34)
    x, taken = across.at(bound), list[Label]()
    # beside the line, on the side where there is room for it
    places = [(x + 7, up.end - 14, "start"), (x - 7, up.end - 14, "end")]
    # a round number of seconds, and known as such: 160 s
    _label(f"bound {bound / 1000:g} s", "bound", places, taken, width)
    dots = []
    for kind in curves:
        for name, ms in marks.get(kind, {}).items():
            x, y, words = across.at(ms), up.at(float(name.removeprefix("p")) / 100), f"{name} {shown_duration(ms)}"
            dots.append((x, y, 4.5, kind, words))
            # registry staleness is the shorter one: its labels go to the left if they can, the clients' to the right
            left = [(x - 10, y - 7, "end"), (x - 10, y + 16, "end")]
            right = [(x + 10, y + 16, "start"), (x + 10, y - 7, "start")]
            if width > NARROW:
                _label(words, f"small {kind}", left + right if kind == "registry" else right + left, taken, width)
    told = [
        f"At {name}: {', '.join(f'{mark} {shown_duration(ms)}' for mark, ms in marks[kind].items())}."
        for name, kind in (("NameServers", "registry"), ("clients", "client"))
        if kind in marks
    ]
    return Chart(
        width=width,
        height=height,
        description=" ".join([*told, f"The settings bound it to {shown_duration(bound)}."]),
        across=across,
        up=up,
        rows=[(up.at(share), f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        columns=_duration_ticks(across, apart=52),
        parts={
            "bound": across.at(bound),
            "curves": [(kind, _steps(curve, across, up)) for kind, curve in curves.items()],
            "dots": dots,
            "labels": taken,
        },
    )


def _span(values: Iterable[float]) -> tuple[float, float]:
    """Round durations around all of these."""
    positive = [ms for ms in values if ms > 0]
    longest = max(positive, default=1000) * 1.02
    high = min((tick for tick in _DURATIONS if tick >= longest), default=math.ceil(longest))
    low = max(min(positive, default=100), high / _MOST_SPAN)
    return min(max((tick for tick in _DURATIONS if tick <= low), default=1), high / 10), high


def _duration_ticks(scale: Scale, *, apart: float) -> list[Tick]:
    """Round durations, at least so far apart."""
    ticks: list[Tick] = []
    for value in _DURATIONS:
        place = scale.at(value)
        if scale.low <= value <= scale.high and (not ticks or abs(place - ticks[-1][0]) >= apart):
            units = (("d", _DAY_MS), ("h", 3_600_000), ("min", _MINUTE_MS), ("s", 1_000), ("ms", 1))
            unit, size = next((unit, size) for unit, size in units if value >= size)
            ticks.append((place, f"{value / size:g} {unit}"))
    return ticks


def _steps(curve: Iterable[Sequence[float]], across: Scale, up: Scale) -> list[tuple[float, float]]:
    """From 0 %, a step at each value."""
    points: list[tuple[float, float]] = []
    for ms, share in curve:
        x = across.at(ms)
        points += [(x, points[-1][1] if points else up.at(0)), (x, up.at(share))]
    return points


def _label(words: str, kind: str, places: Iterable[tuple[float, float, str]], taken: list[Label], width: int) -> None:
    """Add a label at the first of these places where nothing else stands; nowhere if there is none."""
    for x, y, anchor in places:
        label = Label(x, y, words, kind, anchor)
        is_free = all(label.right <= t.left or t.right <= label.left or abs(y - t.y) >= _LINE + 1 for t in taken)
        if is_free and label.left >= 0 and label.right <= width:
            taken.append(label)
            return


def timeline(brokers: Sequence[Row], timeline: Row, width: int) -> Chart:
    """These rows of the time line from top to bottom, over one time axis; each shows when its server was down."""
    is_narrow = width <= NARROW
    top, row_height, label_width = 30, 38 if is_narrow else 24, 2 if is_narrow else 250
    height = top + row_height * len(brokers) + 8
    across = Scale(timeline["from_ms"], timeline["to_ms"], label_width, width - 12)
    labels, boxes = [], list[Box]()
    for index, row in enumerate(brokers):
        y, where = top + row_height * index, f"{row['broker']} on {row['nameserver']}"
        if is_narrow:
            labels.append(Label(2, y + 13, _shortened(where, 52), "row small", "start"))
        else:
            labels.append(Label(label_width - 10, y + 15, _shortened(where, 37), "row small", "end"))
        bar = y + (18 if is_narrow else 5)
        down = f"{row['nameserver']} was not running, or its log is missing, for"
        boxes += [
            _bar(across, bar, (begin, end), "down", f"{down} {shown_duration(end - begin)}")
            for begin, end in timeline["down"].get(row["nameserver"], ())
        ]
        boxes += [box for life in row["lives"] for box in _life(across, bar, life, where)]
    ended = sum(1 for row in brokers for life in row["lives"] if life["reason"] is not None)
    return Chart(
        width=width,
        height=height,
        description=f"{len(brokers)} brokers; {ended} of their lives ended. The same is in the table of intervals.",
        across=across,
        up=Scale(0, 1, height, top - 6),
        columns=_clock_ticks(across, most=4 if is_narrow else 8),
        parts={"labels": labels, "boxes": boxes},
    )


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a long name: names differ at the end."""
    return text if len(text) <= most else f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def _bar(across: Scale, y: float, span: tuple[float, float], kind: str, tip: str) -> Box:
    left, right = (across.at(moment) for moment in span)
    # a tail of two minutes in a day is a tenth of a pixel; it is what the reader looks for
    least = 2.5 if kind == "stale" else 0.0
    return left, y, max(right - left, least), 13, kind, tip


def _life(across: Scale, y: float, life: Row, where: str) -> list[Box]:
    reason, stale_ms, began, ended = life["reason"], life["stale_ms"], life["from_ms"], life["to_ms"]
    alive_until = ended - (stale_ms or 0)
    until = shown_moment(life["last_ok_ms" if stale_ms else "to_ms"]) if reason else "the end of the server's log"
    goodbye = f" ({reason})" if reason and not stale_ms else ""
    tip = f"{where}: alive from {shown_moment(began)} to {until}{goodbye}"
    alive = _bar(across, y, (began, alive_until), "alive", tip)
    if not stale_ms:
        return [alive]
    tip = f"{where}: last heard {shown_moment(life['last_ok_ms'])}, removed {shown_duration(stale_ms)} later ({reason})"
    return [alive, _bar(across, y, (alive_until, ended), "stale", tip)]


def _clock_ticks(across: Scale, *, most: int) -> list[Tick]:
    """Round moments; one at the edge has no name."""
    low, high = int(across.low), int(across.high)
    step = next((step for step in _CLOCK_STEPS if (high - low) / step <= most), _CLOCK_STEPS[-1])
    places = {moment: across.at(moment) for moment in range(-(-low // step) * step, high + 1, step)}
    return [(x, _clock(ms, step) if across.start + 18 < x < across.end - 14 else "") for ms, x in places.items()]


def _clock(ms: int, step: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    if step >= _DAY_MS or ms % _DAY_MS == 0:
        return moment.strftime("%d %b")
    return moment.strftime("%H:%M" if step >= _MINUTE_MS else "%H:%M:%S")


def gaps(bins: Sequence[Row], width: int) -> Chart:
    """One bar for each bin; what comes near to a removal is red."""
    height = 250 if width <= NARROW else 270
    most = max(item["count"] for item in bins)
    # the last bin may have no end
    ends = [item["from_pct"] + 10 if item["to_pct"] is None else item["to_pct"] for item in bins]
    across = Scale(0, max(ends), 52, width - 14)
    up = Scale(0.5, max(most, 10), height - 46, 14, logarithmic=True)
    boxes = []
    for item, end in zip(bins, ends, strict=True):
        if item["count"]:
            left, top = across.at(item["from_pct"]) + 0.75, up.at(item["count"])
            kind = "bar late" if item["from_pct"] >= _NEAR_MISS_PERCENT else "bar"
            to = "more" if item["to_pct"] is None else f"{item['to_pct']:g} %"
            tip = f"{item['from_pct']:g} % to {to} of the expiry: {item['count']:,} gaps"
            boxes.append((left, top, across.at(end) - 0.75 - left, up.start - top, kind, tip))
    total = sum(item["count"] for item in bins)
    near = sum(item["count"] for item in bins if item["from_pct"] >= _NEAR_MISS_PERCENT)
    # 1, 10, 100, 1 k
    counts = [(10**n, f"{10 ** (n % 3)}{_THOUSANDS[n // 3]}") for n in range(math.ceil(math.log10(max(most, 10))) + 1)]
    # labels need their room
    step = 50 if width <= NARROW or across.high > 200 else 25  # noqa: PLR2004
    return Chart(
        width=width,
        height=height,
        description=f"{total:,} gaps; {near:,} of them are in bins beyond two thirds of the broker's expiry.",
        across=across,
        up=up,
        rows=[(up.at(count), shown) for count, shown in counts if count <= up.high],
        columns=[(across.at(percent), f"{percent} %") for percent in range(0, int(across.high) + 1, step)],
        parts={"boxes": boxes, "expiry": across.at(100) if across.high >= 100 else None},  # noqa: PLR2004 - percent
    )


class Setting(NamedTuple):
    """One point of the chart of other settings."""

    # short: 120/10/30
    label: str
    # fixed, phi or logged
    kind: str
    false_evictions: int
    staleness_ms: float


def what_if(settings: Sequence[Setting], width: int) -> Chart:
    """False evictions to the right, staleness upwards: the best is at the bottom on the left."""
    height = 400 if width <= NARROW else 430
    most = max(setting.false_evictions for setting in settings)
    is_logarithmic = most > _MOST_LINEAR
    across = Scale(1, max(most, 1) + 1, 60, width - 24, is_logarithmic)
    up = Scale(0, max(setting.staleness_ms for setting in settings) * 1.08 or 1000, height - 46, 18)
    if is_logarithmic:
        counts = [0, *(10**power for power in range(math.ceil(math.log10(most + 1))))]
    else:
        counts = [tick for tick in _count_ticks(most) if tick <= max(most, 1)]
    places = {one: (across.at(one.false_evictions + 1), up.at(one.staleness_ms)) for one in settings}
    dots: list[tuple[float, float, float, str, str]] = []
    for one in sorted(settings, key=lambda one: one.kind == "logged"):
        tip = f"{one.label}: p99 {shown_duration(one.staleness_ms)}, {one.false_evictions:,} false evictions"
        dots += [(*places[one], 9, "halo", "")] if one.kind == "logged" else []
        dots.append((*places[one], 5.5, one.kind, tip))
    front = best(settings)
    choices = "; ".join(
        f"{one.label}: {shown_duration(one.staleness_ms)}, {one.false_evictions} false" for one in front
    )
    kept = settings
    if len(settings) > _MOST_LABELS[width <= NARROW]:
        kept = [one for one in settings if one in front or one.kind == "logged"]
    return Chart(
        width=width,
        height=height,
        description=f"{len(settings)} settings. The best ones, staleness and false evictions: {choices}.",
        across=across,
        up=up,
        rows=[(up.at(s * 1000), f"{s} s") for s in _count_ticks(up.high / 1000) if s * 1000 <= up.high],
        columns=[(across.at(count + 1), f"{count:,}") for count in counts],
        parts={
            "front": [places[one] for one in front] if len(front) > 1 else [],
            "dots": dots,
            "labels": _setting_labels([(places[one], one) for one in kept], across.end, height),
        },
    )


def best(settings: Iterable[Setting]) -> list[Setting]:
    """Those to choose from: no other one is better in one way without being worse in the other."""
    front: list[Setting] = []
    for one in sorted(settings, key=lambda one: (one.false_evictions, one.staleness_ms)):
        if not front or one.staleness_ms < front[-1].staleness_ms:
            front.append(one)
    return front


def _count_ticks(high: float) -> list[int]:
    """Some six round whole numbers from 0 to beyond `high`, or to it."""
    rough = max(high, 1) / 6
    power = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(int(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    return list(range(0, math.ceil(max(high, 1) / step) * step + 1, step))


def _setting_labels(
    points: Iterable[tuple[tuple[float, float], Setting]], end: float, height: int
) -> list[tuple[tuple[float, float], tuple[float, float], Label]]:
    """Labels, each with the line to its point; those of points that lie closely are one column beside them."""
    named = []
    ordered = sorted((((round(x, 1), round(y, 1)), one) for (x, y), one in points), key=lambda point: point[0])
    # settings in one place share their label
    for (x, y), group in groupby(ordered, key=lambda point: point[0]):
        here = [one for _, one in group]
        kind = "small stale" if any(one.kind == "logged" for one in here) else "small"
        named.append((x, y, ", ".join(dict.fromkeys(one.label for one in here)), kind))
    found = []
    for column in _columns(named):
        right, is_left = max(x for x, *_ in column) + 18, False
        if right + _room(column) > end + 20:
            right, is_left = min(x for x, *_ in column) - 18, True
        places = _apart([y for _, y, _, _ in column], 20, height - 52)
        for (x, y, words, kind), place in zip(column, places, strict=True):
            label = Label(right, place + 4, words, kind, "end" if is_left else "start")
            found.append(((x, y), (right + 4 if is_left else right - 4, place), label))
    return found


def _room(column: Iterable[tuple[float, float, str, str]]) -> int:
    return max(len(words) for _, _, words, _ in column) * _LETTER


def _columns(labels: Iterable[tuple[float, float, str, str]]) -> list[list[tuple[float, float, str, str]]]:
    """Labels that would stand over each other, from top to bottom."""
    columns: list[list[tuple[float, float, str, str]]] = []
    for label in sorted(labels):
        if columns and label[0] - columns[-1][0][0] < _room(columns[-1]) + 30:
            columns[-1].append(label)
        else:
            columns.append([label])
    return [sorted(column, key=lambda label: label[1]) for column in columns]


def _apart(wanted: Iterable[float], low: float, high: float) -> list[float]:
    """Places for lines of text, in the given (rising) order, near where they are wanted and not over each other."""
    down = accumulate(wanted, lambda above, place: max(place, above + _LINE), initial=low - _LINE)
    up = accumulate(reversed(list(down)[1:]), lambda below, place: min(place, below - _LINE), initial=high + _LINE)
    return list(up)[:0:-1]
