"""Registration periods of brokers on each server, divergence, and the staleness at clients."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from tests.spark_jobs.reference.lines import HEARTBEATS, MICROSECONDS, MOST_COUNT, Boot, Line, entries, lower_median

# Number of latest intervals that count: a broker with a changed interval is measured by the new interval.
RECENT_INTERVALS = 10
# Two registrations at once, over two connections, are closer than this, and are no interval.
SHORTEST_INTERVAL = 10 * MICROSECONDS
OVER_BOUND_TOLERANCE = 1000 * MICROSECONDS
# Longest overlap of two successive boots of one server, due to inexact clocks.
LONGEST_OVERLAP = 1000 * MICROSECONDS
# Reasons of evictions of brokers that did not unregister.
UNANNOUNCED = frozenset({"silent", "disconnected"})

# (from, to) in wall time
Span = tuple[int, int]
# (cluster, address)
Address = tuple[str | None, str | None]
# A broker in a route.
Member = tuple[str | None, int | None]


class Broker(NamedTuple):
    """The broker of a line."""

    cluster: str | None
    broker_name: str | None
    broker_id: int | None
    broker_addr: str | None

    @classmethod
    def of(cls, line: Line) -> "Broker":
        return cls(*(line.get(name) for name in cls._fields))

    @property
    def label(self) -> str:
        return "/".join(str(part) for part in self[:3] if part is not None)


class RegistrationPeriod:
    """A broker on one boot, from first heartbeat to eviction; `back` is the broker's first heartbeat afterwards."""

    def __init__(
        self, boot: Boot, heartbeats: Sequence[Line], evict: Line | None, back: Line | None, *, is_first: bool
    ) -> None:
        self.boot, self.heartbeats, self.evict, self.back = boot, heartbeats, evict, back
        # Number of the period among those of the address on this boot.
        self.is_first = is_first
        self.last_line = self.evict or self.heartbeats[-1]
        self.broker = Broker.of(self.last_line)
        self.expiry = self.last_line.time("expiry_ms")
        # None: the period began before the log.
        self.first_ok = self.heartbeats[0].at if self.heartbeats else None
        self.last_ok = self.heartbeats[-1].at if self.heartbeats else _unseen_last_ok(boot, self.last_line)
        # None: the period is open.
        self.reason: str | None = None if self.evict is None else self.evict.get("reason")
        self.removed = None if self.evict is None else self.evict.at
        self.is_unannounced = self.reason in UNANNOUNCED
        # Upper and lower bound of the time for which the route was stale.
        self.upper = self.last_line.at - self.last_ok if self.is_unannounced else 0
        self.lower = max(0, self.upper - self.usual_interval)

    @property
    def usual_interval(self) -> int:
        """The usual interval between heartbeats."""
        intervals = [later.at - earlier.at for earlier, later in pairwise(self.heartbeats)]
        counted = [interval for interval in intervals if interval >= SHORTEST_INTERVAL][-RECENT_INTERVALS:]
        return lower_median(counted) if counted else (self.expiry or 0) // 4

    @property
    def is_over_bound(self) -> bool:
        """True if the broker stayed for longer than the settings allow."""
        if self.expiry is None or self.boot.scan_interval is None:
            return False
        during = (line for line in self.boot.of("late") if self.last_ok < line.at <= self.last_line.at)
        late = sum(line.time("late_ms") or 0 for line in during)
        return self.upper > self.expiry + self.boot.scan_interval + late + OVER_BOUND_TOLERANCE

    @property
    def is_false_eviction(self) -> bool:
        """True if the same broker process sends a heartbeat again."""
        back, evict = self.back, self.last_line
        return self.is_unannounced and back is not None and is_same_process(evict, back, back.at - evict.at)


def _unseen_last_ok(boot: Boot, evict: Line) -> int:
    """The last heartbeat of a broker without heartbeats in the log; `silent_ms` is liveness time, without delays."""
    silent = evict.time("silent_ms") or 0
    seen = boot.live[evict.seq] - silent
    delays = (line for line in boot.of("late") if line.at <= evict.at and boot.live[line.seq] > seen)
    return evict.at - silent - sum(line.time("late_ms") or 0 for line in delays)


def periods(boot: Boot) -> list[RegistrationPeriod]:
    """All registration periods of a boot, in order for each broker."""
    found = []
    for lines in lines_of_brokers(boot).values():
        ends = [number for number, line in enumerate(lines, 1) if line.event == "evict"]
        for begin, end in pairwise(dict.fromkeys([0, *ends, len(lines)])):
            evict = lines[end - 1] if lines[end - 1].event == "evict" else None
            back = next_of_same(lines, end - 1)
            heartbeats = lines[begin : end - (evict is not None)]
            found.append(RegistrationPeriod(boot, heartbeats, evict, back, is_first=begin == 0))
    return found


def lines_of_brokers(boot: Boot) -> dict[tuple[str, str], list[Line]]:
    """The heartbeats and evictions of each broker address, in order."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in boot.lines:
        if line.event in HEARTBEATS or line.event == "evict":
            found[line.get("cluster"), line.get("broker_addr")].append(line)
    return found


def next_of_same(lines: Sequence[Line], here: int) -> Line | None:
    """The next heartbeat of the line's broker."""
    broker, later = Broker.of(lines[here]), (lines[there] for there in range(here + 1, len(lines)))
    return next((line for line in later if line.event in HEARTBEATS and Broker.of(line) == broker), None)


def is_same_process(before: Line, heartbeat: Line, away: int) -> bool:
    """True if a heartbeat comes from the broker process of an earlier line, after `away`."""
    agents = before.get("agent_id"), heartbeat.get("agent_id")
    if agents == (None, None):
        expiry = before.time("expiry_ms")
        return expiry is not None and away <= expiry
    return bool(agents[0] == agents[1])


def near_misses(period: RegistrationPeriod) -> list[tuple[Line, int]]:
    """(heartbeat, silence after it) for each silence of over two thirds of the expiry, in liveness time."""
    live = period.boot.live
    found = [
        (heartbeat, heartbeat.time("expiry_ms"), live[after.seq] - live[heartbeat.seq])
        for heartbeat, after in pairwise(period.heartbeats)
    ]
    return [
        (heartbeat, silence) for heartbeat, expiry, silence in found if expiry is not None and 3 * silence > 2 * expiry
    ]


def episodes(boots: Sequence[Boot], periods: Iterable[RegistrationPeriod]) -> dict[Broker, list[Span]]:
    """The episodes of divergence: some running servers had a broker, and other running servers lacked the broker.

    A broker is identified by its address, and has the name and id of its last registration period on any server.
    """
    server_of = _servers(boots)
    up: dict[str | None, list[Span]] = defaultdict(list)
    for boot in boots:
        up[server_of[boot.boot]].append((boot.wall(boot.first.at), boot.wall(boot.last.at)))
    had: dict[Address, dict[str | None, list[Span]]] = defaultdict(lambda: defaultdict(list))
    ends: dict[Address, list[tuple[int, str, Broker]]] = defaultdict(list)
    for period in periods:
        if (since := _since(period)) is not None:
            broker, address = period.broker, (period.broker.cluster, period.broker.broker_addr)
            end = period.boot.wall(period.boot.last.at if period.removed is None else period.removed)
            had[address][server_of[period.boot.boot]].append((period.boot.wall(since), end))
            ends[address].append((end, broker.label, broker))
    last = {max(found, key=lambda end: end[:2])[2]: address for address, found in ends.items()}
    unknown = {address: _unknown(boots, server_of, ours) for address, ours in _by_address(periods).items()}
    return {broker: _disagreements(up, had[last[broker]], unknown[last[broker]]) for broker in sorted(last, key=repr)}


def _by_address(periods: Iterable[RegistrationPeriod]) -> dict[Address, list[RegistrationPeriod]]:
    found: dict[Address, list[RegistrationPeriod]] = defaultdict(list)
    for period in periods:
        if _since(period) is not None:
            found[period.broker.cluster, period.broker.broker_addr].append(period)
    return found


def _unknown(
    boots: Sequence[Boot], server_of: Mapping[str, str | None], periods: Sequence[RegistrationPeriod]
) -> dict[str | None, list[Span]]:
    """The boots that may have had the broker before the log begins, and ended before any line about the broker."""
    with_lines = {(period.boot.boot, period.boot.first) for period in periods}
    expiry = max((period.expiry for period in periods if period.expiry is not None), default=None)
    found: dict[str | None, list[Span]] = defaultdict(list)
    for boot in boots:
        length = boot.last.at - boot.first.at - boot.late
        is_short = expiry is not None and length <= expiry + (boot.scan_interval or 0)
        if _is_cut(boot) and is_short and (boot.boot, boot.first) not in with_lines:
            found[server_of[boot.boot]].append((boot.wall(boot.first.at), boot.wall(boot.last.at)))
    return found


def _servers(boots: Sequence[Boot]) -> dict[str, str | None]:
    """The server of each boot: its name, or the boot itself if it overlaps a boot of the same name by over a second.

    Boots that overlap belong to two servers that share the name.
    """
    parts: dict[tuple[str | None, str], list[Boot]] = defaultdict(list)
    for boot in boots:
        parts[boot.nameserver, boot.boot].append(boot)
    extents = {
        key: (min(one.wall(one.first.at) for one in ours), max(one.wall(one.last.at) for one in ours))
        for key, ours in parts.items()
    }
    servers: dict[str, str | None] = {boot: name for name, boot in extents}
    for (one, (began, ended)), (other, (other_began, other_ended)) in combinations(extents.items(), 2):
        if one[0] == other[0] and min(ended, other_ended) - max(began, other_began) > LONGEST_OVERLAP:
            servers[one[1]], servers[other[1]] = one[1], other[1]
    return servers


def _since(period: RegistrationPeriod) -> int | None:
    """The time since which the server had the broker, perhaps since before the log; None: unknown."""
    was_registered = not period.heartbeats or (period.heartbeats[0].time("silent_ms") or 0) > 0
    is_older = _is_cut(period.boot) and was_registered and period.is_first
    return period.boot.first.at if is_older else period.first_ok


def _is_cut(boot: Boot) -> bool:
    """True if the log, or the selected time, begins after the start of the server."""
    starts = boot.of("start")
    return not starts or starts[0].at < boot.first.at


def _disagreements(
    up: Mapping[str | None, list[Span]],
    has: Mapping[str | None, list[Span]],
    unknown: Mapping[str | None, list[Span]],
) -> list[Span]:
    """The times of disagreement: judge each stretch between two neighbouring ends of spans, then join neighbours."""
    ends = sorted({end for spans in (*up.values(), *has.values(), *unknown.values()) for span in spans for end in span})
    found: list[Span] = []
    for began, ended in pairwise(ends):
        running, having, unsure = (
            sum(_covers(spans, began, ended) for spans in spans_of.values()) for spans_of in (up, has, unknown)
        )
        if 0 < having < running - unsure:
            is_same = bool(found) and found[-1][1] == began
            found.append((found.pop()[0] if is_same else began, ended))
    return found


def _covers(spans: Sequence[Span], began: int, ended: int) -> bool:
    return any(first <= began and ended <= last for first, last in spans)


@dataclass(frozen=True, slots=True)
class ClientStaleness:
    """How long one connection had a route of one topic with a broker that was gone."""

    period: RegistrationPeriod
    client: str | None
    topic: str
    # One of seen, returned, client_gone and log_end.
    outcome: str
    at: int

    @property
    def staleness(self) -> int:
        """The time since the last heartbeat; a lower bound if the outcome is censored."""
        return self.at - self.period.last_ok


@dataclass(frozen=True, slots=True)
class Given:
    """A response with one topic; several pulls of the same route are one value."""

    at: int
    client: str | None
    topic: str
    revision: int
    count: int


class Routes:
    """The routes of one boot, and the routes that each client received."""

    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        # (topic, revision) -> members of the route, as far as the log has them
        self.members = _members(boot)
        served = _given(boot, "served")
        # (client, topic) -> responses in order, as far as their routes are known
        self.served: dict[tuple[str | None, str], list[Given]] = defaultdict(list)
        self._pairs_of_member: dict[Member, set[tuple[str | None, str]]] = defaultdict(set)
        for given in served:
            for member in self.members.get((given.topic, given.revision), ()):
                self._pairs_of_member[member].add((given.client, given.topic))
            if (given.topic, given.revision) in self.members:
                self.served[given.client, given.topic].append(given)
        self.unknown_revisions = len(served) - sum(len(known) for known in self.served.values())
        self._pulls = _given(boot, "pulls")
        # client -> end of its connection
        self.gone = {line.get("client"): line.at for line in reversed(boot.of("client_gone"))}

    def _has(self, given: Given, period: RegistrationPeriod) -> bool:
        """True if the route of a response contains the broker."""
        return _member(period) in self.members.get((given.topic, given.revision), ())

    def exposed(self, period: RegistrationPeriod) -> list[ClientStaleness]:
        """The staleness at each client that had a route with the broker, for every outcome."""
        found = []
        for client, topic in sorted(self._pairs_of_member.get(_member(period), ())):
            before = [line for line in self.served[client, topic] if line.at < period.last_line.at]
            gone = self.gone.get(client)
            if before and self._has(before[-1], period) and (gone is None or gone >= period.last_line.at):
                # Of several outcomes at the same time, the first in this order counts.
                at, outcome = min(self._outcomes(period, client, topic), key=lambda end: end[0])
                found.append(ClientStaleness(period, client, topic, outcome, at))
        return found

    def _outcomes(self, period: RegistrationPeriod, client: str | None, topic: str) -> Iterator[tuple[int, str]]:
        served, removed = self.served[client, topic], period.last_line.at
        yield from ((line.at, "seen") for line in served if line.at >= removed and not self._has(line, period))
        yield from ((line.at, "returned") for line in served if line.at > removed and self._has(line, period))
        if client in self.gone:
            yield self.gone[client], "client_gone"
        yield self.boot.last.at, "log_end"

    def pulls(self, period: RegistrationPeriod) -> Counter[str]:
        """The responses of each topic that contained the broker after its last heartbeat."""
        end = period.last_line.at + (self.boot.scan_interval or 0)
        found: Counter[str] = Counter()
        for given in self._pulls:
            if period.last_ok < given.at <= end and self._has(given, period):
                found[given.topic] += given.count
        return found


def _member(period: RegistrationPeriod) -> Member:
    return period.broker.broker_name, period.broker.broker_id


def _members(boot: Boot) -> dict[tuple[str, int], frozenset[Member]]:
    """The route of each revision of each topic; of two lines with the same revision the first counts."""
    entry_of: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in sorted(boot.of("route"), key=lambda line: line.seq):
        if line.get("revision") is not None:
            for entry in entries(line):
                for topic in entry["topics"]:
                    entry_of[topic].setdefault(line.get("revision"), entry)
    found: dict[tuple[str, int], frozenset[Member]] = {}
    for topic, changes in entry_of.items():
        # broker name -> ids; None: unknown
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
