"""Places of bars and marks in a timeline row."""

import re

import pytest

from namesrv_console.catalogue import catalogue
from namesrv_console.past.strip_picture import strip_picture
from namesrv_console.past.timeline_rows import cells, downtimes, drawn, ticks
from namesrv_spark_jobs.history.model import (
    Broker,
    Reading,
    RegistrationPeriod,
    Run,
    Silence,
    Strip,
    StripBin,
    StripKind,
    StripRow,
    TimelineRow,
)
from namesrv_spark_jobs.history.spans import Span

SPAN = Span(1_000, 101_000)
BROKER = Broker(cluster="c1", broker_name="broker-a", broker_id=0, broker_addr="10.0.0.1:10911")
READING = Reading(span=SPAN, files=1, lines=1, bad=0, read_ms=0)


def period(first: int | None, last: int, end: int, reason: str | None, *, due: int | None = None) -> RegistrationPeriod:
    """A registration period, due five seconds after its last heartbeat."""
    return RegistrationPeriod(
        first_ok_ms=first,
        last_ok_ms=last,
        due_ms=last + 5_000 if due is None else due,
        reason=reason,
        end_ms=end,
        stale_ms=end - last,
        is_false=False,
    )


def row(*periods: RegistrationPeriod, silences: tuple[Silence, ...] = (), fenced: tuple[int, ...] = ()) -> TimelineRow:
    """One broker on one server."""
    return TimelineRow(broker=BROKER, nameserver="ns", periods=[*periods], silences=[*silences], fenced_ms=[*fenced])


@pytest.mark.parametrize(
    ("of", "bars", "marks"),
    [
        (period(11_000, 31_000, 41_000, "silent"), [("registered", 10, 25), ("late", 35, 5)], [("evicted", 40)]),
        (period(11_000, 31_000, 41_000, "unregistered"), [("registered", 10, 30)], [("unregistered", 40)]),
        (period(11_000, 31_000, 33_000, "disconnected"), [("registered", 10, 22)], [("disconnected", 32)]),
        # A newer server may have further reasons.
        (period(11_000, 31_000, 33_000, "expelled"), [("registered", 10, 22)], [("removed", 32)]),
        # Not ended, and the last heartbeat was in time when the log ended.
        (period(11_000, 31_000, 33_000, None), [("registered", 10, 22)], []),
        # Registered before the hours that were read, removed after the shown span.
        (period(None, 500, 11_000, "silent", due=6_000), [("registered", 0, 5), ("late", 5, 5)], [("evicted", 10)]),
        (period(91_000, 99_000, 109_000, "silent"), [("registered", 90, 10)], []),
        (period(200_000, 210_000, 220_000, "silent"), [], []),
    ],
)
def test_broker_is_registered_and_then_late(
    of: RegistrationPeriod, bars: list[tuple[str, float, float]], marks: list[tuple[str, float]]
) -> None:
    """A bar is late from the missing heartbeat until the removal, and is cut at the span."""
    found = drawn(row(of), SPAN)

    assert [(bar.kind, bar.x, bar.width) for bar in found.bars] == bars
    assert [(mark.kind, mark.x) for mark in found.marks] == marks


def test_silences_and_fenced_removals_do_not_split_a_registration_period() -> None:
    """A silence and a fenced removal are drawn over the bar of the registration period."""
    found = drawn(
        row(period(1_000, 90_000, 101_000, None), silences=(Silence(from_ms=21_000, to_ms=41_000),), fenced=(40_000,)),
        SPAN,
    )

    assert [(bar.kind, bar.x) for bar in found.bars] == [("registered", 0), ("late", 20), ("late", 94)]
    assert [(mark.kind, mark.x) for mark in found.marks] == [("fenced", 39)]
    assert found.removals == []


def test_bars_below_a_pixel_are_merged() -> None:
    """Ten thousand registration periods of ten milliseconds are a few hundred bars."""
    short = [period(at, at + 1, at + 1, "unregistered", due=at + 1) for at in range(1_000, 101_000, 10)]

    found = drawn(row(*short), SPAN)

    assert len(found.bars) <= 2_000
    assert len(found.marks) <= 2_000
    assert max(bar.to_ms for bar in found.bars) - 1 == 100_990


def test_last_texts_of_an_axis_end_at_their_ticks() -> None:
    """Of eight ticks, the text of the last one, which would not fit to its right, is to its left."""
    assert [tick.anchor for tick in ticks(Span(0, 8_000))] == [*["start"] * 7, "end"]


def run(began: int, ended: int, *, nameserver: str = "ns", has_ended: bool = True) -> Run:
    """One boot of a server."""
    return Run(nameserver=nameserver, boot_id=f"b{began}", from_ms=began, to_ms=ended, has_ended=has_ended)


@pytest.mark.parametrize(
    ("runs", "read_until_ms", "down"),
    [
        # Before, between and after its own runs; other servers' runs do not count.
        (
            [run(61_000, 81_000), run(11_000, 51_000), run(1_000, 101_000, nameserver="other")],
            300_000,
            [(0, 10), (50, 10), (80, 20)],
        ),
        # The clock was set back before a restart: a shorter boot lies within the time of the one before.
        ([run(1_000, 81_000), run(31_000, 51_000)], 300_000, [(80, 20)]),
        # The log was read before the end of the span, which may be in the future.
        ([run(1_000, 81_000)], 91_000, [(80, 10)]),
        ([run(1_000, 81_000, has_ended=False)], 91_000, []),
        # A server that was killed is down once it has been silent for two minutes.
        ([run(1_000, 81_000, has_ended=False)], 201_000, []),
        ([run(1_000, 81_000, has_ended=False)], 201_001, [(80, 20)]),
    ],
)
def test_server_is_down_around_its_runs(runs: list[Run], read_until_ms: int, down: list[tuple[float, float]]) -> None:
    """A page shows a reading that may be a minute old: the lines since then are unknown."""
    assert [(bar.x, bar.width) for bar in downtimes(runs, "ns", SPAN, read_until_ms=read_until_ms)] == down


def test_strip_has_a_cell_for_every_bin() -> None:
    """A bin without heartbeat and removal is an empty cell."""
    bins = [
        StripBin(number=0, heartbeats=2, longest_ms=30_000, kind="regular"),
        StripBin(number=2, heartbeats=0, longest_ms=0, kind="removed", reason="silent"),
    ]
    row = StripRow(broker=BROKER, nameserver="ns", bins=bins)

    found = cells(Strip(reading=READING, span=SPAN, rows=[row]), row)

    assert [cell.kind for cell in found[:4]] == ["regular", "none", "removed", "none"]
    assert len(found) == 144


@pytest.mark.parametrize(
    ("language", "heartbeats", "kind", "title"),
    [
        ("en", 1, "regular", "1970-01-01T00:00:01: 1 heartbeat, longest silence 0.0 s"),
        ("en", 2_000, "removed", "1970-01-01T00:00:01: 2,000 heartbeats, longest silence 0.0 s, evicted"),
        ("zh", 0, "removed", "1970-01-01T00:00:01\uff1a0 次心跳\uff0c最长无心跳时间 0.0 秒\uff0c已剔除"),
    ],
)
def test_cell_of_a_strip_has_a_title(language: str, heartbeats: int, kind: StripKind, title: str) -> None:
    """A cell's title has the number of heartbeats with the right noun, and the removal, in the page's language."""
    cell = StripBin(number=0, heartbeats=heartbeats, longest_ms=0, kind=kind, reason="silent")
    strip = Strip(reading=READING, span=SPAN, rows=[StripRow(broker=BROKER, nameserver="ns", bins=[cell])])

    picture = strip_picture(strip, catalogue(language).text, label="")
    assert re.findall("<title>(.*)</title>", picture) == [title]
