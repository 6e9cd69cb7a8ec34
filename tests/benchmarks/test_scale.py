"""The calculation for fleets that are larger than one machine."""

import pytest

from benchmarks.harness.build import ROOT
from benchmarks.harness.table import with_block
from benchmarks.speed import scale


def test_ten_servers_for_a_million_clients_that_poll() -> None:
    """By hand: 100,000 clients per server pull ten topics in 30 s, at 30.05 µs; 4,000,000 new topics at 1.04 µs."""
    found = scale.needed(scale.XL, scale.Costs.of(scale.MEASURED))

    assert (found["connections"], found["a death"]) == (110_000, 0)
    assert found["core, clients"] == pytest.approx(1.0017, abs=0.001)
    what, share = scale.ends_first(found)
    assert what == "core"
    assert share == pytest.approx((1.0017 + 0.022) / 0.6, abs=0.01)


def test_table_on_the_page_is_current() -> None:
    """Writing the table again does not change the page."""
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")

    assert with_block(page, scale.table(scale.Costs.of(scale.MEASURED))) == page
