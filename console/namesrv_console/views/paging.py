"""The division of a long list into pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Rows of one page: few enough to read, and to send again when something changes.
PAGE_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """One page of a list."""

    rows: Sequence[T]
    # Number of rows on all pages.
    count: int
    # Number of this page, which is at most that of the last page.
    page: int
    pages: int


def on_page(rows: Sequence[T], page: int) -> Paged[T]:
    """A page of the rows; the last one if there are fewer pages."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(1, page), pages)
    return Paged(rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(rows), page, pages)
