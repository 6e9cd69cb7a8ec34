"""Every link between our pages leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT, pages, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.*)")


def anchors(page: Path) -> set[str]:
    """What a link into the page may name after its #."""
    found = [HEADING.fullmatch(line) for _, line in prose(page)]
    return {re.sub(r"[^\w\- ]", "", match[1].lower()).replace(" ", "-") for match in found if match}


def links(page: Path) -> Iterator[tuple[int, str]]:
    """The links of a page to other files of ours, with their lines."""
    for number, line in prose(page):
        for target in LINK.findall(line):
            if not target.startswith(("http://", "https://")):
                yield number, target


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that there is, and to a heading in it."""
    broken = []
    for number, target in links(page):
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(f"{page.relative_to(ROOT)}:{number}: {target}")
    assert [] == broken


def test_every_page_can_be_reached() -> None:
    """From the README, over links, so that nobody has to search."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page.suffix == ".md" and page not in reached and page.exists():
            reached.add(page)
            waiting += [page.parent / target.partition("#")[0] for _, target in links(page)]
    # the tests have notes of their own, for those who work on them
    wanted = [page for page in pages() if page.relative_to(ROOT).parts[0] not in ("tests", "CHANGELOG.md")]
    missing = {str(page.relative_to(ROOT)) for page in wanted if page not in reached}
    assert set() == missing
