"""The generated parts of our pages are current; `python -m tests.docs.generated` writes them anew."""

import re
import tomllib
from pathlib import Path

from tests.docs.api_pages import PAGES as API_PAGES
from tests.docs.generated import PROTOCOL, frames, generated
from tests.docs.import_rules import ARCHITECTURE, packages_of
from tests.support.pages import ROOT, blocks


def _names(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)


def test_pages_are_current(tmp_path: Path) -> None:
    """Frames, settings, import rules, request classes and names are those of the code and of a real server."""
    for page, text in generated(tmp_path / "data").items():
        # the sentences in the tables of the APIs may be older than those in the code
        shown = _names if page in API_PAGES else str
        assert (page, shown(page.read_text())) == (page, shown(text))


def test_every_frame_of_the_protocol_is_generated(tmp_path: Path) -> None:
    """Each dump of docs/protocol.md is the frame of an exchange with a real server."""
    shown = {block.example for block in blocks(PROTOCOL) if block.language == "hex"}

    assert shown - frames(tmp_path / "data").keys() == set()


def test_import_table_has_every_package() -> None:
    """Each of our packages has a row in docs/architecture.md."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

    assert sorted(packages_of(ARCHITECTURE.read_text())) == sorted(linter["root_packages"])
