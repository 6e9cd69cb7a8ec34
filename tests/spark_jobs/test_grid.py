"""The grid of --what-if."""

import pytest

from namesrv_spark_jobs.options import DEFAULT_GRID, WhatIf, parse_grid


def test_default_grid_is_the_analysis_own() -> None:
    """The text that --help shows is what is computed when nothing is said."""
    assert WhatIf() == parse_grid(DEFAULT_GRID)


def test_axes_are_read_in_seconds() -> None:
    """A value named twice is one, parts of a second are allowed."""
    grid = parse_grid("expiry=2,2,0.5 scan=1 poll=3 phi=8")

    assert WhatIf(expiry_ms=(2_000, 500), scan_ms=(1_000,), poll_ms=(3_000,), phi=(8.0,)) == grid


def test_axis_that_is_not_named_keeps_its_default() -> None:
    """An axis may also be emptied: no phi at all."""
    grid = parse_grid("expiry=45 phi=")

    assert (45_000,) == grid.expiry_ms
    assert () == grid.phi
    assert WhatIf().scan_ms == grid.scan_ms


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expire=30", "'expire=30' is not AXIS=VALUES with one of expiry, scan"),
        ("30,60", "'30,60' is not AXIS=VALUES"),
        ("scan=5 scan=10", "names an axis more than once"),
        ("poll=fast", "poll: 'fast' is not a number"),
        ("poll=0", "poll: 0 is not between 0 and 86400"),
        ("poll=-5", "poll: -5 is not between 0 and 86400"),
        ("poll=nan", "poll: nan is not between"),
        ("phi=101", "phi: 101 is not between 0 and 100"),
        ("scan=", "leaves no combination of settings to replay"),
        (f"expiry={','.join(map(str, range(1, 60)))}", "248 combinations of settings, limit 200"),
    ],
)
def test_what_is_no_grid_is_refused(text: str, said: str) -> None:
    """With what is wrong, and what may be said."""
    with pytest.raises(ValueError, match=r".+") as raised:
        parse_grid(text)

    assert said in str(raised.value)
