"""Search: brokers and topics by a part of their name; the search field requests `part=results` while the user types."""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final, Literal, NamedTuple

from namesrv_console.console import Content, Page, Visit

# Number of hits that fit under the search box.
MAX_HITS: Final = 20
_Kind = Literal["broker", "topic"]


class Hit(NamedTuple):
    """A broker or topic that matches a search."""

    kind: _Kind
    name: str


def search(text: str, brokers: Iterable[str], topics: Iterable[str], most: int = MAX_HITS) -> list[Hit]:
    """The names that contain the text, in any case: names that begin with the text first, and of them short ones."""
    wanted = text.strip().casefold()
    if not wanted:
        return []
    searched: list[tuple[_Kind, Iterable[str]]] = [("broker", brokers), ("topic", topics)]
    # All of a hundred thousand names may match: only the best become hits.
    found = (
        (not folded.startswith(wanted), len(name), kind, name)
        for kind, names in searched
        for name in names
        if wanted in (folded := name.casefold())
    )
    return [Hit(kind, name) for _, _, kind, name in nsmallest(most, found)]


async def show(visit: Visit) -> Content:
    """The best hits."""
    text = visit.query.get("q", "")
    # Brokers of two clusters, on different servers, may have one name.
    clusters: dict[str, set[str]] = {}
    for key in visit.cluster.broker_keys:
        clusters.setdefault(key.broker_name, set()).add(key.cluster)
    topics = visit.console.compared.topics(visit.cluster).made
    return {"text": text, "hits": search(text, clusters, topics), "clusters": clusters}


PAGE = Page("search", "/search", "search.title", show, parts=("results",), fields=("q",))
