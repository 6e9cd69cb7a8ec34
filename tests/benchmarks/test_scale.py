"""Fleets that no machine holds, calculated."""

import json
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.servers import ROOT

PAGE = ROOT / "docs" / "scale.md"


def test_ten_servers_for_a_million_clients_that_poll() -> None:
    """By hand: 100,000 clients of each ask ten questions in 30 s, at 30.05 µs; 4,000,000 new topics at 1.44 µs."""
    found = scale.need(scale.XL, scale.Costs.of(scale.MEASURED))

    assert (110_000, 0) == (found.connections, found.told_seconds)
    assert found.client_core == pytest.approx(1.0017, abs=0.001)
    assert 5.7 < found.restart_seconds
    what, share = found.first()
    assert what == "core"
    assert share == pytest.approx((1.0017 + 0.022) / 0.6, abs=0.01)


def test_the_table_on_the_page_is_what_is_calculated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written again it is the same page; figures of another run are taken from its JSON, and others' names left."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert scale.main(["--write", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")

    figures = tmp_path / "figures.json"
    names = {"profiles.L.pulls.computing": 8.89, "pulls.json.rate": 0.6}
    figures.write_text(json.dumps({"figures": [{"name": name, "value": value} for name, value in names.items()]}))
    assert scale.main(["--json", str(figures)]) == 0
    assert "| XL: 10 servers, polls every 30 s | 110,000 | 0.02 | 0.30 |" in capsys.readouterr().out


def test_a_page_without_a_block_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written."""
    page = tmp_path / "page.md"
    page.write_text("# Prose\n", encoding="utf-8")

    assert scale.main(["--write", str(page)]) == 1
    assert capsys.readouterr().err.startswith("scale: no block to write into")
    assert page.read_text(encoding="utf-8") == "# Prose\n"
