"""Contents of our pages: fenced blocks, commands, links, headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_EXAMPLE: Final = re.compile(r"<!-- example: (\S+) -->")
_FENCE: Final = re.compile(r"(\s*)(`{3,})\s*(\S*)\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the name that a comment before it gives it."""

    page: str
    line: int
    language: str
    text: str
    example: str | None = None


def pages() -> list[Path]:
    """Every page that is meant for people: the README, the manuals of the components, and docs/."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    found += [page for page in ROOT.glob("*/*/*/README.md") if ".venv" not in page.parts]
    return sorted({page for page in found if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)})


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in its order."""
    name = str(page.relative_to(ROOT))
    example: str | None = None
    opened: tuple[int, str, str, str] | None = None
    text: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = _FENCE.fullmatch(line)
        if opened is None and fence:
            opened = (number, fence[1], fence[2], fence[3])
            text = []
        elif opened is not None and fence and fence[2] == opened[2] and not fence[3]:
            yield Block(
                name, opened[0], opened[3], "".join(f"{each.removeprefix(opened[1])}\n" for each in text), example
            )
            opened = example = None
        elif opened is not None:
            text.append(line)
        elif found := _EXAMPLE.fullmatch(line.strip()):
            example = found[1]
        elif line.strip():
            example = None


def example(page: str, name: str) -> str:
    """The text of the block that a page names so."""
    (found,) = [block for block in blocks(ROOT / page) if block.example == name]
    return found.text


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page that are in no block, with their numbers."""
    inside: str | None = None
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = _FENCE.fullmatch(line)
        if fence and inside is None:
            inside = fence[2]
        elif fence and fence[2] == inside and not fence[3]:
            inside = None
        elif inside is None:
            yield number, line
