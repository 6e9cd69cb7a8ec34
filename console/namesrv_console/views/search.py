"""Search by a part of a name: the best few of very many names."""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final, Literal, NamedTuple

# Number of hits that fit under the search box.
MAX_HITS: Final = 20


class Hit(NamedTuple):
    """A broker or topic that matches a search."""

    kind: Literal["broker", "topic"]
    name: str


def search(text: str, brokers: Iterable[str], topics: Iterable[str], most: int = MAX_HITS) -> list[Hit]:
    """The names that contain the text, in any case: names that begin with the text first, and of them short ones."""
    wanted = text.strip().casefold()
    if not wanted:
        return []
    found = [Hit("broker", name) for name in brokers if wanted in name.casefold()]
    found += [Hit("topic", name) for name in topics if wanted in name.casefold()]
    return nsmallest(
        most, found, key=lambda hit: (not hit.name.casefold().startswith(wanted), len(hit.name), hit.kind, hit.name)
    )
