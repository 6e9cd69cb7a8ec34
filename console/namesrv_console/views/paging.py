"""The division of a long list into pages."""

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# Rows of one page: few enough to read, and to send again when something changes.
PAGE_ROWS: Final = 100


def on_page(rows: Sequence[T], page: int) -> tuple[Sequence[T], int, int]:
    """The rows of a page, its number, which is at most that of the last page, and the number of pages."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(1, page), pages)
    return rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page, pages
