"""Times: from text to milliseconds, and as people read them."""

import pytest

from namesrv_spark_jobs.command.arguments import moment_ms
from namesrv_spark_jobs.command.gates import duration_ms
from namesrv_spark_jobs.report.shown import printable, shown_duration, shown_moment


@pytest.mark.parametrize(
    ("text", "ms"),
    [("45", 45_000), ("45s", 45_000), ("1500ms", 1_500), ("2m", 120_000), ("1.5 h", 5_400_000), ("0", 0)],
)
def test_duration_is_seconds_unless_it_says_otherwise(text: str, ms: float) -> None:
    """Seconds are what people mean by a bare number of staleness."""
    assert ms == duration_ms(text)


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "1e3", "45 seconds", "NaN", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A limit that is read wrongly is a gate that says nothing."""
    with pytest.raises(ValueError, match=r"^not a valid duration: .*\(for example 45, 45s, 1500ms, 2m or 1h\)$"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-03-01", 1_772_323_200_000),
        ("2026-03-01T07:30", 1_772_350_200_000),
        ("2026-03-01T07:30:00Z", 1_772_350_200_000),
        ("2026-03-01T08:30+01:00", 1_772_350_200_000),
        ("1772350200000", 1_772_350_200_000),
    ],
)
def test_moment_is_utc_unless_it_says_otherwise(text: str, ms: int) -> None:
    """Wherever this runs."""
    assert ms == moment_ms(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-03-01 25:00", "12345678", "9" * 16])
def test_what_is_no_moment_is_refused(text: str) -> None:
    """Eight digits are a date without its hyphens rather than a moment in 1970."""
    with pytest.raises(ValueError, match=r"^not a valid time: "):
        moment_ms(text)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "\N{EN DASH}"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (99_949, "99.9 s"),
        (99_950, "100 s"),
        (160_000, "160 s"),
        (299_999, "300 s"),
        (300_000, "5 min"),
        (359_600, "6 min"),
        (3_599_600, "1 h"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (200_000_000, "2.3 d"),
    ],
)
def test_duration_is_shown_as_people_say_it(ms: float | None, shown: str) -> None:
    """With three digits or so, whatever its size."""
    assert shown == shown_duration(ms)


def test_moment_is_shown_in_utc() -> None:
    """To the second; none is a dash."""
    assert "2026-03-01 07:30:00" == shown_moment(1_772_350_200_000)
    assert "\N{EN DASH}" == shown_moment(None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("café λ", "café λ"), ("a\x1b[31m\x9b", "a\\x1b[31m\\x9b"), ("\u202eb", "\\u202eb"), ("\ud800\n", "\\ud800\\n")],
)
def test_what_a_terminal_would_obey_is_spelt_out(name: str, shown: str) -> None:
    """Escape sequences, directions of writing, ends of lines."""
    assert shown == printable(name)
