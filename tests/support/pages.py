"""Contents of our pages: fenced blocks, commands, links, headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_EXAMPLE: Final = re.compile(r"<!-- example: (\S+) -->")
_FENCE: Final = re.compile(r"(\s*)(`{3,})\s*(\S*)\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, and the name given by the comment before it."""

    page: str
    line: int
    language: str
    text: str
    example: str | None = None


def pages() -> list[Path]:
    """Every page for readers: the README, the manuals of the components, and docs/."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    found += [page for page in ROOT.glob("*/*/*/README.md") if ".venv" not in page.parts]
    return sorted({page for page in found if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)})


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    return (found for found in _parts(page) if isinstance(found, Block))


def example(page: str, name: str) -> str:
    """The text of the block with this name."""
    (found,) = [block for block in blocks(ROOT / page) if block.example == name]
    return found.text


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page outside its blocks."""
    return (found for found in _parts(page) if not isinstance(found, Block))


def _parts(page: Path) -> Iterator[Block | tuple[int, str]]:
    name, example = str(page.relative_to(ROOT)), None
    lines = enumerate(page.read_text().splitlines(), start=1)
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            if line.strip():
                found = _EXAMPLE.fullmatch(line.strip())
                example = found[1] if found else None
            yield number, line
            continue
        indent, ticks, language = fence.groups()
        inside = (line for _, line in lines)
        text = takewhile(lambda line: line.strip() != ticks, inside)  # noqa: B023 - called at once
        yield Block(name, number, language, "".join(f"{each.removeprefix(indent)}\n" for each in text), example)
        example = None
