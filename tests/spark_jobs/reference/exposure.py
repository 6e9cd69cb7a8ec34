"""Who went on getting the route of a broker that was gone, and for how long?"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import Line
from tests.spark_jobs.reference.lives import UNANNOUNCED, Broker, Life

# a broker as routes have it
Member = tuple[str | None, int | None]


@dataclass(frozen=True, slots=True)
class ClientStaleness:
    """How long one connection had a route of one topic with a broker that was gone."""

    life: Life
    client: str
    topic: str
    # seen, returned, client_gone or log_end
    outcome: str
    at: int

    @property
    def staleness(self) -> int:
        """Since the broker was last heard; when it is censored, at least that."""
        return self.at - self.life.last_ok


class Routes:
    """The routes of one boot, and who was given which."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        # (topic, revision) -> who is in it
        self.members: dict[tuple[str, int], frozenset[Member]] = {}
        for line in sorted(boot.of("route"), key=lambda line: line.seq):
            self.members.setdefault((line.get("topic"), line.get("revision")), _members(line))
        # (client, topic) -> what it was given, in order, as far as the route is known
        self.served: dict[tuple[str, str], list[Line]] = defaultdict(list)
        self.unknown_revisions = 0
        for line in boot.of("served"):
            if self._key(line) in self.members:
                self.served[line.get("client"), line.get("topic")].append(line)
            else:
                self.unknown_revisions += 1
        # client -> when its connection ended
        self.gone: dict[str, int] = {}
        for line in boot.of("client_gone"):
            self.gone.setdefault(line.get("client"), line.at)
        self._pairs_of_member: dict[Member, set[tuple[str, str]]] = defaultdict(set)
        for pair, lines in self.served.items():
            for line in lines:
                for member in self.members[self._key(line)]:
                    self._pairs_of_member[member].add(pair)

    @staticmethod
    def _key(line: Line) -> tuple[str, int]:
        return line.get("topic"), line.get("revision")

    def has(self, line: Line, broker: Broker) -> bool:
        """Whether the route of a line contains a broker."""
        return (broker.broker_name, broker.broker_id) in self.members.get(self._key(line), ())

    def exposed(self, life: Life) -> list[ClientStaleness]:
        """What each client that had the broker's route saw of its end, whatever it ended with."""
        pairs = self._pairs_of_member.get((life.broker.broker_name, life.broker.broker_id), ())
        return [
            staleness
            for client, topic in sorted(pairs)
            if (staleness := self._staleness(life, client, topic)) is not None
        ]

    def _staleness(self, life: Life, client: str, topic: str) -> ClientStaleness | None:
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

    def _outcomes(self, life: Life, served: list[Line], removed: int, gone: int | None) -> Iterator[tuple[int, str]]:
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
        for line in self.boot.of("pulls"):
            if life.last_ok < line.at <= end and self.has(line, life.broker):
                found[line.get("topic")] += line.get("count") or 0
        return found


def _members(route: Line) -> frozenset[Member]:
    return frozenset((broker.get("name"), member) for broker in route.get("brokers") or () for member in broker["ids"])
