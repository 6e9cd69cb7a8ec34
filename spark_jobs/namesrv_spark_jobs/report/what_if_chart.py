"""Chart of other settings: each is a point, false evictions against staleness."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from namesrv_spark_jobs.report.shown import shown_duration
from namesrv_spark_jobs.report.svg import NARROW, Picture, Scale, apart, count_ticks

_LINE: Final = 15
_LETTER: Final = 7
# more names than that are a grey mass: the best settings and the logged ones keep theirs
_MOST_LABELS: Final = {False: 26, True: 6}
# from there on single evictions are not told apart any more
_MOST_LINEAR: Final = 20


@dataclass(frozen=True)
class Setting:
    """One point."""

    # short: 120/10/30
    label: str
    # fixed, phi or logged
    kind: str
    false_evictions: int
    staleness_ms: float


# where it is drawn
Point = tuple[float, float, Setting]
# where, words, class
Label = tuple[float, float, str, str]


def draw_what_if(settings: Sequence[Setting], width: int) -> Picture:
    """False evictions to the right, staleness upwards: the best is at the bottom on the left."""
    height = 400 if width <= NARROW else 430
    picture = Picture(width, height, "Staleness against false evictions", _description(settings))
    most = max(setting.false_evictions for setting in settings)
    across = Scale(1, most + 1, 60, width - 24, logarithmic=True) if most > _MOST_LINEAR else _few(most, width)
    up = Scale(0, max(setting.staleness_ms for setting in settings) * 1.08 or 1000, height - 46, 18)
    _draw_axes(picture, across, up, most)
    front = [(across.at(one.false_evictions + 1), up.at(one.staleness_ms)) for one in best(settings)]
    if len(front) > 1:
        picture.curve(front, kind="front")
    points = [(across.at(one.false_evictions + 1), up.at(one.staleness_ms), one) for one in settings]
    _draw_labels(picture, _labelled(points, _MOST_LABELS[width <= NARROW]), across.end)
    for x, y, one in sorted(points, key=lambda point: point[2].kind == "logged"):
        _draw_point(picture, (x, y), one)
    return picture


def _few(most: int, width: int) -> Scale:
    return Scale(1, max(most, 1) + 1, 60, width - 24)


def best(settings: Iterable[Setting]) -> list[Setting]:
    """Those to choose from: no other one is better in one way without being worse in the other."""
    front: list[Setting] = []
    for one in sorted(settings, key=lambda one: (one.false_evictions, one.staleness_ms)):
        if not front or one.staleness_ms < front[-1].staleness_ms:
            front.append(one)
    return front


def _description(settings: Sequence[Setting]) -> str:
    choices = "; ".join(
        f"{one.label}: {shown_duration(one.staleness_ms)}, {one.false_evictions} false" for one in best(settings)
    )
    return f"{len(settings)} settings. The best ones, staleness and false evictions: {choices}."


def _draw_axes(picture: Picture, across: Scale, up: Scale, most: int) -> None:
    for tick in count_ticks(up.high / 1000, 6):
        if tick * 1000 <= up.high:
            y = up.at(tick * 1000)
            picture.line((across.start - 14, y), (across.end, y), kind="axis" if tick == 0 else "grid")
            picture.text((across.start - 22, y + 4), f"{tick} s", kind="small", anchor="end")
    for count in _counts(across, most):
        x = across.at(count + 1)
        picture.line((x, up.start), (x, up.end), kind="grid")
        picture.text((x, up.start + 19), f"{count:,}", kind="small", anchor="middle")
    picture.text((across.end, up.start + 38), "false evictions", kind="small", anchor="end")


def _counts(across: Scale, most: int) -> list[int]:
    if across.logarithmic:
        return [0, *(10**power for power in range(math.ceil(math.log10(most + 1))))]
    return [tick for tick in count_ticks(most, 6) if tick <= max(most, 1)]


def _labelled(points: Sequence[Point], most: int) -> list[Label]:
    """Place, words and class of the labels; settings in one place share theirs."""
    settings = [one for _, _, one in points]
    if len(points) > most:
        kept = {*best(settings), *(one for one in settings if one.kind == "logged")}
        points = [point for point in points if point[2] in kept]
    ordered = sorted(points, key=lambda point: (round(point[0], 1), round(point[1], 1)))
    labels = []
    for (x, y), group in groupby(ordered, key=lambda point: (round(point[0], 1), round(point[1], 1))):
        here = [one for _, _, one in group]
        names = ", ".join(dict.fromkeys(one.label for one in here))
        kind = "small stale" if any(one.kind == "logged" for one in here) else "small"
        labels.append((x, y, names, kind))
    return labels


def _draw_labels(picture: Picture, labels: Sequence[Label], end: float) -> None:
    """Labels of points that lie closely are one column beside them, with a line to each point."""
    for column in _columns(labels):
        ordered = sorted(column, key=lambda label: label[1])
        room = max(len(words) for _, _, words, _ in ordered) * _LETTER
        right = max(x for x, *_ in ordered)
        is_left = right + 18 + room > end + 20
        at = min(x for x, *_ in ordered) - 18 if is_left else right + 18
        places = apart([y for _, y, _, _ in ordered], _LINE, 20, picture.height - 52)
        for (x, y, words, kind), place in zip(ordered, places, strict=True):
            picture.line((x, y), (at - 4 if not is_left else at + 4, place), kind="leader")
            picture.text((at, place + 4), words, kind=kind, anchor="end" if is_left else "start")


def _columns(labels: Sequence[Label]) -> list[list[Label]]:
    columns: list[list[Label]] = []
    for label in sorted(labels):
        room = max((len(words) for _, _, words, _ in columns[-1]), default=0) * _LETTER + 30 if columns else 0
        if columns and label[0] - columns[-1][0][0] < room:
            columns[-1].append(label)
        else:
            columns.append([label])
    return columns


def _draw_point(picture: Picture, at: tuple[float, float], one: Setting) -> None:
    tip = f"{one.label}: p99 {shown_duration(one.staleness_ms)}, {one.false_evictions:,} false evictions"
    if one.kind == "logged":
        picture.dot(at, 9, kind="halo")
    picture.dot(at, 5.5, kind=one.kind, tip=tip)
