"""The generated parts of our pages are current; `python -m tests.docs.generated` writes them anew."""

import re
from pathlib import Path

from tests.docs.api_pages import PAGES as API_PAGES
from tests.docs.generated import PROTOCOL, generated
from tests.docs.wire_examples import EXCHANGES
from tests.support.pages import blocks


def _names(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)


def test_pages_are_current(tmp_path: Path) -> None:
    """Frames, settings, import rules, request classes and names are those of the code and of a real server.

    The test ends at the first page that is not; `python -m tests.docs.generated` writes all of them anew.
    """
    for page, text in generated(tmp_path / "data").items():
        # The sentences in the tables of the APIs may be older than the docstrings.
        shown = _names if page in API_PAGES else str
        assert (page, shown(page.read_text())) == (page, shown(text))


def test_every_frame_of_the_protocol_is_generated() -> None:
    """Each dump of docs/protocol.md is the frame of an exchange with a real server."""
    shown = {block.example for block in blocks(PROTOCOL) if block.language == "hex"}

    assert shown - {f"{one.name}.{part}" for one in EXCHANGES for part in ("request", "response")} == set()
