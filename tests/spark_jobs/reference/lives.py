"""Lives of brokers at each server, and how stale each was at its end."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lines import BEATS, Line
from tests.spark_jobs.reference.numbers import MICROSECONDS, lower_median

# of the last beats, so that a broker whose period was changed is measured by its new one
GAPS_OF_PERIOD = 10
# two registrations at once, over two connections, are no period
SHORTEST_GAP = 10 * MICROSECONDS
OVER_BOUND_TOLERANCE = 1000 * MICROSECONDS
# a broker that left without saying so
UNANNOUNCED = frozenset({"silent", "disconnected"})


@dataclass(frozen=True, slots=True)
class Broker:
    """Who a line is about."""

    cluster: str | None
    broker_addr: str | None
    broker_name: str | None
    broker_id: int | None

    @classmethod
    def of(cls, line: Line) -> "Broker":
        """The broker of a line."""
        return cls(line.get("cluster"), line.get("broker_addr"), line.get("broker_name"), line.get("broker_id"))

    @property
    def label(self) -> str:
        """As people name it."""
        parts = (self.cluster, self.broker_name, self.broker_id)
        return "/".join(str(part) for part in parts if part is not None)


@dataclass(slots=True)
class Life:
    """One broker on one boot, from its first beat to its eviction."""

    boot: Boot
    broker: Broker
    beats: list[Line]
    evict: Line | None
    agent_id: str | None = field(init=False)
    expiry: int | None = field(init=False)
    # None when it began before the log
    first_ok: int | None = field(init=False)
    last_ok: int = field(init=False)
    # of the next beat of the same broker comes from the same process
    is_false_eviction: bool = False

    def __post_init__(self) -> None:
        said = self.evict or self.beats[-1]
        self.broker = Broker.of(said)
        self.agent_id = said.get("agent_id")
        self.expiry = said.time("expiry_ms")
        self.first_ok = self.beats[0].at if self.beats else None
        self.last_ok = self.beats[-1].at if self.beats else said.at - (said.time("silent_ms") or 0)

    @property
    def reason(self) -> str | None:
        """Why it ended; None when it is open."""
        return None if self.evict is None else self.evict.get("reason")

    @property
    def removed(self) -> int | None:
        """When it was evicted."""
        return None if self.evict is None else self.evict.at

    @property
    def period(self) -> int:
        """How often it is usually heard."""
        gaps = [gap for gap in self.gaps() if gap >= SHORTEST_GAP][-GAPS_OF_PERIOD:]
        return lower_median(gaps) if gaps else (self.expiry or 0) // 4

    def gaps(self) -> list[int]:
        """The times between its beats."""
        return [later.at - earlier.at for earlier, later in pairwise(self.beats)]

    @property
    def upper(self) -> int:
        """How long its route was stale at most."""
        if self.removed is None or self.reason not in UNANNOUNCED:
            return 0
        return self.removed - self.last_ok

    @property
    def lower(self) -> int:
        """How long its route was stale at least."""
        return max(0, self.upper - self.period)

    @property
    def is_unannounced(self) -> bool:
        """Whether the broker left without saying so."""
        return self.reason in UNANNOUNCED

    @property
    def is_over_bound(self) -> bool:
        """Whether it stayed longer than the settings allow."""
        if self.removed is None or self.expiry is None or self.boot.scan_interval is None:
            return False
        late = self.boot.late_between(self.last_ok, self.removed)
        return self.upper > self.expiry + self.boot.scan_interval + late + OVER_BOUND_TOLERANCE


def lives(boot: Boot) -> list[Life]:
    """All lives of a boot; those of one broker in order."""
    found: list[Life] = []
    for lines in lines_of_brokers(boot).values():
        ours = [Life(boot, Broker.of(part[0]), *_parts(part)) for part in _divided(lines)]
        for life in ours:
            life.is_false_eviction = _is_false_eviction(life, lines)
        found += ours
    return found


def lines_of_brokers(boot: Boot) -> dict[tuple[str, str], list[Line]]:
    """The beats and evictions of each broker address, in order."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in boot.lines:
        if line.event in BEATS or line.event == "evict":
            found[line.get("cluster"), line.get("broker_addr")].append(line)
    return found


def _divided(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lives end behind their eviction."""
    life: list[Line] = []
    for line in lines:
        life.append(line)
        if line.event == "evict":
            yield life
            life = []
    if life:
        yield life


def _parts(life: list[Line]) -> tuple[list[Line], Line | None]:
    return (life[:-1], life[-1]) if life[-1].event == "evict" else (life, None)


def _is_false_eviction(life: Life, lines: Sequence[Line]) -> bool:
    if life.evict is None or life.reason not in UNANNOUNCED:
        return False
    evict = life.evict
    later = (line for line in lines if line > evict and line.event in BEATS and Broker.of(line) == life.broker)
    return (beat := next(later, None)) is not None and is_same_process(evict, beat, beat.at - evict.at)


def is_same_process(before: Line, beat: Line, away: int) -> bool:
    """Whether a beat comes from the process of an earlier line, which was away for a time."""
    agents = before.get("agent_id"), beat.get("agent_id")
    if agents == (None, None):
        expiry = before.time("expiry_ms")
        return expiry is not None and away <= expiry
    return bool(agents[0] == agents[1])


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A silence that was nearly too long."""

    broker: Broker
    # the beats around it
    before: Line
    after: Line
    # in liveness time
    silence: int


def near_misses(life: Life) -> list[NearMiss]:
    """Neighbouring beats with over two thirds of the expiry between them."""
    live = life.boot.live
    pairs = ((before, after, live[after.seq] - live[before.seq]) for before, after in pairwise(life.beats))
    return [
        NearMiss(Broker.of(before), before, after, silence)
        for before, after, silence in pairs
        if (expiry := before.time("expiry_ms")) is not None and 3 * silence > 2 * expiry
    ]
