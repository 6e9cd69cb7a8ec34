"""The reference: every line is an event or counted, and its time is read as the contract says."""

import pytest

from tests.spark_jobs.reference import analyse
from tests.spark_jobs.reference.boots import boots
from tests.spark_jobs.reference.lines import FileCount, read
from tests.spark_jobs.reference.numbers import lower_median, percentile, whole
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, files_of


def test_what_is_no_event_is_counted_and_the_rest_is_read() -> None:
    """A torn line, no object, no `seq`, a text for a number; empty ones are nothing."""
    good = HeartbeatLines().start().beat(10).lines
    bad = [good[1][:40], "[1]", good[1].replace('"seq": 2', '"sec": 2'), good[1].replace('"seq": 2', '"seq": "2"')]

    reading = read({"one": [*good, "", *bad]})

    assert ["start", "heartbeat"] == [line.event for line in reading.lines]
    assert {"one": FileCount(lines=6, bad=4)} == reading.files


def test_bytes_are_read_like_text_and_half_a_character_is_bad() -> None:
    """What a crash leaves may end in the middle of a character."""
    text = HeartbeatLines().start().lines[0].encode()

    assert {"f": FileCount(lines=2, bad=1)} == read({"f": [text, text[:-2] + b"\xc3"]}).files


def test_a_number_of_a_boot_counts_once() -> None:
    """The second file has the first one's last line again; another boot may have the same numbers."""
    lines = HeartbeatLines().start().beat(10).beat(20).lines
    other = HeartbeatLines("boot-2").start().lines

    reading = read({"a": lines[:2], "b": [*lines[1:], *other]})

    assert [("boot-1", 1), ("boot-1", 2), ("boot-1", 3), ("boot-2", 1)] == [(x.boot, x.seq) for x in reading.lines]
    assert {"a": FileCount(lines=2), "b": FileCount(lines=3, duplicates=1)} == reading.files


def test_newer_versions_and_unknown_events_are_read_and_counted() -> None:
    """What is known of them is used."""
    lines = HeartbeatLines().start().add("sang", 5).beat(10, v=3).lines

    reading = read({"f": lines})

    assert {"f": FileCount(lines=3, newer_version=1, unknown_events=1)} == reading.files
    assert 1 == len(analyse({"f": lines}).lives)


def test_order_is_by_time_then_by_number() -> None:
    """What happened under the lock is told after it."""
    lines = HeartbeatLines().start().beat(30).beat(20).beat(30).lines

    (boot,) = boots(read({"f": lines}).lines)

    assert [1, 3, 2, 4] == [line.seq for line in boot.lines]


def test_a_wall_clock_that_steps_moves_nothing_and_is_counted() -> None:
    """Five anchors, of which two are an hour ahead: the median is the true offset, and there are two steps."""
    lines = HeartbeatLines().start(0).scan(5_000, 1)
    lines.wall_ms += 3_600_000
    lines.scan(10_000, 2).beat(11_000).scan(15_000, 3)
    lines.wall_ms -= 3_600_000
    lines.scan(20_000, 4)

    (boot,) = boots(read(files_of(lines)).lines)

    assert MIDNIGHT_MS == boot.offset_ms
    assert 2 == len(boot.clock_steps)
    assert (MIDNIGHT_MS + 11_000) * 1000 == boot.wall(11_000_000)


@pytest.mark.parametrize(("step_ms", "steps"), [(500, 0), (501, 1), (-501, 1)])
def test_a_clock_step_is_over_half_a_second(step_ms: int, steps: int) -> None:
    """A clock that is slewed by less is no finding."""
    lines = HeartbeatLines().start(0)
    lines.wall_ms += step_ms
    lines.scan(5_000, 1)

    assert steps == len(boots(read(files_of(lines)).lines)[0].clock_steps)


def test_without_an_anchor_all_lines_say_the_offset() -> None:
    """Of two the lower one counts, and halves are rounded up."""
    lines = HeartbeatLines().beat(0.5).beat(10)

    # differences: wall + 0 - 0.5 and wall + 10 - 10
    assert MIDNIGHT_MS == boots(read(files_of(lines)).lines)[0].offset_ms


def test_liveness_stands_still_while_the_server_is_late() -> None:
    """Late by 40 s in all; what was heard just before a `late` line counts as heard at it."""
    lines = HeartbeatLines().start(0).beat(10_000).beat(60_000).late(60_500, 30_000).beat(61_000).late(90_000, 10_000)
    lines.scan(91_000, 1)

    (boot,) = boots(read(files_of(lines)).lines)

    assert [0, 10_000, 30_500, 30_500, 31_000, 50_000, 51_000] == [boot.live[seq] // 1000 for seq in range(1, 8)]


def test_a_log_that_begins_later_begins_with_the_sum_so_far() -> None:
    """`opened` says it when `start` is not there, and only then."""
    opened = {"scan_interval_ms": 5_000, "broker_expiry_ms": 60_000, "late_ms": 700}
    later = HeartbeatLines().add("opened", 10_000, **opened).beat(11_000)
    whole_log = HeartbeatLines("boot-2").start(0).late(1_000, 700).add("opened", 10_000, **opened).beat(11_000)

    first, second = boots(read(files_of(later, whole_log)).lines)

    assert 10_300_000 == first.live[2]
    assert 10_300_000 == second.live[4]
    assert (5_000_000, 60_000_000) == (first.scan_interval, first.expiry)
    assert (5_000_000, 120_000_000) == (second.scan_interval, second.expiry)


def test_boots_of_clients_are_left_out() -> None:
    """They name a server whose up-time they know nothing of."""
    client = HeartbeatLines("client-boot").add("start", 0).add("isolated", 10, client="c", broker_name="b", for_ms=30)

    assert ["boot-1"] == [boot.boot for boot in boots(read(files_of(HeartbeatLines().start(), client)).lines)]


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [([7], 0.5, 7), ([10, 20], 0.5, 15), ([10, 20, 30], 0.5, 20), ([0, 10, 20, 30, 40], 0.9, 36), ([1, 2], 1, 2)],
)
def test_percentiles_are_linear_between_neighbours(values: list[int], part: float, expected: float) -> None:
    """Position `p · (n - 1)`."""
    assert expected == percentile(values, part)


def test_rounding_and_medians() -> None:
    """Halves up, also below zero; the lower one of two."""
    assert [1, 2, 3, -1] == [whole(value) for value in (0.5, 1.5, 2.5, -1.5)]
    assert 3 == lower_median([9, 1, 5, 3])
