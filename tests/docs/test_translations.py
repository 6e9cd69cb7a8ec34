"""A page in Chinese has what its English original has: headings, blocks, rows of tables, items of lists."""

import re

import pytest

from tests.docs.generated import BEGIN, END
from tests.support.pages import ROOT, Block, blocks, prose

TRANSLATED = {
    "README.zh-CN.md": "README.md",
    "docs/zh/quick-start.md": "docs/quick-start.md",
    "docs/zh/migrating.md": "docs/migrating.md",
    "docs/zh/operating.md": "docs/operating.md",
}


def skeleton(name: str) -> list[str]:
    """What of a page does not depend on the language it is in; the table of settings is in English only."""
    page = ROOT / name
    parts = {line: kind(text) for line, text in prose(page)}
    parts |= {block.line: commands(block) for block in blocks(page)}
    generated = [line for line, text in prose(page) if f"{text}\n" in {BEGIN, END}] or [0, 0]
    return [part for line, part in sorted(parts.items()) if part and not generated[0] < line < generated[-1]]


def commands(block: Block) -> str:
    """A block without its remarks; figures of text are drawn anew in each language."""
    text = re.sub(r"(^|\s+)#.*", "", block.text, flags=re.MULTILINE)
    return f"{block.language} {block.example or ''}: {text if block.language in {'sh', 'python'} else ''}"


def kind(line: str) -> str:
    """That it is a heading of some depth, a row of a table with its code, or an item of a list; no more of prose."""
    if line.startswith("|"):
        return f"|{line.count('|')} {sorted(re.findall('`[^`]+`', line))}"
    item = re.match(r"(#+|[-*]|\d+\.) ", line)
    return "" if item is None else item[0]


@pytest.mark.parametrize("name", TRANSLATED)
def test_translation_has_the_parts_of_its_original(name: str) -> None:
    """In the same order; who changes the one is told to change the other."""
    assert skeleton(TRANSLATED[name]) == skeleton(name)


def test_every_page_in_chinese_has_an_original() -> None:
    """And the other way round: it says where its translation is, if it has one."""
    assert {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.zh-CN.md"), *ROOT.glob("docs/zh/*.md"))} == {
        *TRANSLATED
    }
