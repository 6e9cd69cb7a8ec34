"""Client staleness: who went on getting the route of a broker that was gone, and for how long."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import MOST_COUNT, entries
from tests.spark_jobs.reference.lives import UNANNOUNCED, Broker, Life

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

    @property
    def key(self) -> tuple[str, int]:
        """The revision of the topic."""
        return self.topic, self.revision


class Routes:
    """The routes of one boot, and who was given which."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        # (topic, revision) -> who is in it, as far as the log says
        self.members = _members(boot)
        # (client, topic) -> what it was given, in order, as far as the route is known
        self.served: dict[tuple[str | None, str], list[Given]] = defaultdict(list)
        self.unknown_revisions = 0
        for given in _given(boot, "served"):
            if given.key in self.members:
                self.served[given.client, given.topic].append(given)
            else:
                self.unknown_revisions += 1
        self._pulls = _given(boot, "pulls")
        # client -> when its connection ended
        self.gone: dict[str | None, int] = {}
        for line in boot.of("client_gone"):
            self.gone.setdefault(line.get("client"), line.at)
        self._pairs_of_member: dict[Member, set[tuple[str | None, str]]] = defaultdict(set)
        for pair, answers in self.served.items():
            for given in answers:
                for member in self.members[given.key]:
                    self._pairs_of_member[member].add(pair)

    def has(self, given: Given, broker: Broker) -> bool:
        """Whether the route that was given contains a broker."""
        return (broker.broker_name, broker.broker_id) in self.members.get(given.key, ())

    def exposed(self, life: Life) -> list[ClientStaleness]:
        """What each client that had the broker's route saw of its end, whatever it ended with."""
        pairs = self._pairs_of_member.get((life.broker.broker_name, life.broker.broker_id), ())
        return [
            staleness
            for client, topic in sorted(pairs)
            if (staleness := self._staleness(life, client, topic)) is not None
        ]

    def _staleness(self, life: Life, client: str | None, topic: str) -> ClientStaleness | None:
        removed = life.removed
        assert removed is not None
        served = self.served[client, topic]
        before = [line for line in served if line.at < removed]
        gone = self.gone.get(client)
        if not before or not self.has(before[-1], life.broker) or (gone is not None and gone < removed):
            return None
        # of several at one time the first of these counts
        at, outcome = min(self._outcomes(life, served, removed, gone), key=lambda found: found[0])
        return ClientStaleness(life, client, topic, outcome, at)

    def _outcomes(self, life: Life, served: list[Given], removed: int, gone: int | None) -> Iterator[tuple[int, str]]:
        yield from ((line.at, "seen") for line in served if line.at >= removed and not self.has(line, life.broker))
        yield from ((line.at, "returned") for line in served if line.at > removed and self.has(line, life.broker))
        if gone is not None:
            yield gone, "client_gone"
        yield self.boot.last.at, "log_end"

    def pulls(self, life: Life) -> dict[str, int]:
        """Answers about each topic that still contained the broker after it was last heard."""
        if life.removed is None or life.reason not in UNANNOUNCED:
            return {}
        end = life.removed + (self.boot.scan_interval or 0)
        found: dict[str, int] = defaultdict(int)
        for given in self._pulls:
            if life.last_ok < given.at <= end and self.has(given, life.broker):
                found[given.topic] += given.count
        return found


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
