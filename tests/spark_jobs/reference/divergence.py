"""Divergence: when NameServers disagreed about a broker."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lives import Broker, Life

# from, to; wall time
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Episode:
    """A longest stretch during which some had a broker and others, that were up, had it not."""

    broker: Broker
    began: int
    ended: int


def episodes(boots: Iterable[Boot], lives: Iterable[Life]) -> list[Episode]:
    """All of them, by broker and time."""
    up: dict[str | None, list[Span]] = defaultdict(list)
    for boot in boots:
        up[boot.nameserver].append((boot.wall(boot.first.at), boot.wall(boot.last.at)))
    had: dict[Broker, dict[str | None, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for life in lives:
        if life.first_ok is not None:
            end = life.boot.last.at if life.removed is None else life.removed
            had[life.broker][life.boot.nameserver].append((life.boot.wall(life.first_ok), life.boot.wall(end)))
    return [
        Episode(broker, began, ended)
        for broker in sorted(had, key=repr)
        for began, ended in _disagreements(up, had[broker])
    ]


def _disagreements(up: dict[str | None, list[Span]], has: dict[str | None, list[Span]]) -> list[Span]:
    """Between two neighbouring ends of spans nothing changes: look at each such stretch, then join neighbours."""
    ends = sorted({end for spans in (*up.values(), *has.values()) for span in spans for end in span})
    found: list[Span] = []
    for began, ended in pairwise(ends):
        running = [name for name, spans in up.items() if _covers(spans, began, ended)]
        having = [name for name in running if _covers(has.get(name, ()), began, ended)]
        if not having or len(having) == len(running):
            continue
        if found and found[-1][1] == began:
            began = found.pop()[0]  # noqa: PLW2901 - it began there
        found.append((began, ended))
    return found


def _covers(spans: Sequence[Span], began: int, ended: int) -> bool:
    return any(first <= began and ended <= last for first, last in spans)
