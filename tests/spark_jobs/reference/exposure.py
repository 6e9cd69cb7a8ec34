"""Client staleness: who went on getting the route of a broker that was gone, and for how long."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import MOST_COUNT, entries
from tests.spark_jobs.reference.lives import Life

# a broker as routes have it
Member = tuple[str | None, int | None]


@dataclass(frozen=True, slots=True)
class ClientStaleness:
    """How long one connection had a route of one topic with a broker that was gone."""

    life: Life
    client: str | None
    topic: str
    # seen, returned, client_gone or log_end
    outcome: str
    at: int

    @property
    def staleness(self) -> int:
        """Since the broker was last heard; when it is censored, at least that."""
        return self.at - self.life.last_ok


@dataclass(frozen=True, slots=True)
class Given:
    """An answer about one topic; of pulls, several."""

    at: int
    client: str | None
    topic: str
    revision: int
    count: int


class Routes:
    """The routes of one boot, and who was given which."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        # (topic, revision) -> who is in it, as far as the log says
        self.members = _members(boot)
        served = _given(boot, "served")
        # (client, topic) -> what it was given, in order, as far as the route is known
        self.served: dict[tuple[str | None, str], list[Given]] = defaultdict(list)
        self._pairs_of_member: dict[Member, set[tuple[str | None, str]]] = defaultdict(set)
        for given in served:
            for member in self.members.get((given.topic, given.revision), ()):
                self._pairs_of_member[member].add((given.client, given.topic))
            if (given.topic, given.revision) in self.members:
                self.served[given.client, given.topic].append(given)
        self.unknown_revisions = len(served) - sum(len(known) for known in self.served.values())
        self._pulls = _given(boot, "pulls")
        # client -> when its connection ended
        self.gone = {line.get("client"): line.at for line in reversed(boot.of("client_gone"))}

    def _has(self, given: Given, life: Life) -> bool:
        """Whether the route that was given contains the broker."""
        return _member(life) in self.members.get((given.topic, given.revision), ())

    def exposed(self, life: Life) -> list[ClientStaleness]:
        """What each client that had the broker's route saw of its end, whatever it ended with."""
        found = []
        for client, topic in sorted(self._pairs_of_member.get(_member(life), ())):
            before = [line for line in self.served[client, topic] if line.at < life.said.at]
            gone = self.gone.get(client)
            if before and self._has(before[-1], life) and (gone is None or gone >= life.said.at):
                # of several at one time the first of these counts
                at, outcome = min(self._outcomes(life, client, topic), key=lambda end: end[0])
                found.append(ClientStaleness(life, client, topic, outcome, at))
        return found

    def _outcomes(self, life: Life, client: str | None, topic: str) -> Iterator[tuple[int, str]]:
        served, removed = self.served[client, topic], life.said.at
        yield from ((line.at, "seen") for line in served if line.at >= removed and not self._has(line, life))
        yield from ((line.at, "returned") for line in served if line.at > removed and self._has(line, life))
        if client in self.gone:
            yield self.gone[client], "client_gone"
        yield self.boot.lines[-1].at, "log_end"

    def pulls(self, life: Life) -> Counter[str]:
        """Answers about each topic that still contained the broker after it was last heard."""
        end = life.said.at + (self.boot.scan_interval or 0)
        found: Counter[str] = Counter()
        for given in self._pulls:
            if life.last_ok < given.at <= end and self._has(given, life):
                found[given.topic] += given.count
        return found


def _member(life: Life) -> Member:
    return life.broker.broker_name, life.broker.broker_id


def _members(boot: Boot) -> dict[tuple[str, int], frozenset[Member]]:
    """The route of each revision of each topic; of two lines about one revision the first counts."""
    entry_of: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in sorted(boot.of("route"), key=lambda line: line.seq):
        if line.get("revision") is not None:
            for entry in entries(line):
                for topic in entry["topics"]:
                    entry_of[topic].setdefault(line.get("revision"), entry)
    found: dict[tuple[str, int], frozenset[Member]] = {}
    for topic, changes in entry_of.items():
        # broker name -> ids; None: nobody knows
        route: dict[str, list[int]] | None = None
        for revision, entry in sorted(changes.items()):
            before = {} if entry["whole"] else route
            if before is not None:
                kept = {name: ids for name, ids in before.items() if name not in entry["unset"]}
                route = kept | {broker["name"]: broker["ids"] for broker in entry["set"]}
                found[topic, revision] = frozenset((name, number) for name, ids in route.items() for number in ids)
    return found


def _given(boot: Boot, event: str) -> list[Given]:
    return [
        Given(line.at, line.get("client"), topic, entry["revision"], entry["count"] or 0)
        for line in boot.of(event)
        for entry in entries(line)
        for topic in entry["topics"]
        if entry["revision"] is not None and (event == "served" or entry["count"] in range(MOST_COUNT + 1))
    ]
