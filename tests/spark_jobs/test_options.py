"""The grid of --what-if, and the notation of durations and names."""

import pytest

from namesrv_spark_jobs.options import DEFAULT_GRID, WhatIf, parse_grid
from namesrv_spark_jobs.report.shown import printable, shown_duration


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        # The default grid, as --help shows it.
        (DEFAULT_GRID, WhatIf()),
        # Repeated values count once; fractions of a second are allowed.
        ("expiry=2,2,0.5 scan=1 poll=3", WhatIf(expiry_ms=(2_000, 500), scan_ms=(1_000,), poll_ms=(3_000,))),
        ("expiry=30,30.0 poll=0.001,0.0012", WhatIf(expiry_ms=(30_000,), poll_ms=(1,))),
        # An axis without values keeps its default.
        ("expiry=45", WhatIf(expiry_ms=(45_000,))),
    ],
)
def test_grid_is_read_in_seconds(text: str, grid: WhatIf) -> None:
    """Each axis has its own list of values, in seconds."""
    assert parse_grid(text) == grid


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expire=30", "'expire=30' is not AXIS=VALUES with one of expiry, scan"),
        ("30,60", "'30,60' is not AXIS=VALUES"),
        ("scan=5 scan=10", "names an axis more than once"),
        ("poll=fast", "poll: 'fast' is not a number"),
        ("poll=0", "poll: 0 is not over 0 and at most 86400 seconds"),
        ("poll=-5", "poll: -5 is not over 0 and at most 86400 seconds"),
        ("poll=nan", "poll: nan is not over 0"),
        ("phi=8", "'phi=8' is not AXIS=VALUES with one of expiry, scan"),
        ("scan=", "leaves no combination of settings to replay"),
        (f"expiry={','.join(map(str, range(1, 60)))}", "236 combinations of settings, limit 200"),
    ],
)
def test_invalid_grid_is_refused(text: str, message: str) -> None:
    """The error has the invalid value and the valid values."""
    with pytest.raises(ValueError, match=r".+") as raised:
        parse_grid(text)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "\N{EN DASH}"),
        *((0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (99_949, "99.9 s"), (99_950, "100 s"), (160_000, "160 s")),
        *((299_999, "300 s"), (300_000, "5 min"), (359_600, "6 min"), (3_599_600, "1 h"), (3_600_000, "1 h")),
        *((7_500_000, "2 h 5 min"), (200_000_000, "2.3 d")),
    ],
)
def test_duration_is_shown_as_people_say_it(ms: float | None, shown: str) -> None:
    """A duration of any size is shown with about three digits."""
    assert shown_duration(ms) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [("café λ", "café λ"), ("a\x1b[31m\x9b", "a\\x1b[31m\\x9b"), ("\u202eb", "\\u202eb"), ("\ud800\n", "\\ud800\\n")],
)
def test_control_characters_are_escaped(name: str, shown: str) -> None:
    """Escape sequences, changes of the direction of writing, and ends of lines are escaped."""
    assert printable(name) == shown
