"""Routes of one boot, and the times at which clients receive them."""

import heapq
import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.heartbeats import Change, Chunk, Eviction
from tools.heartbeat_logs.lines import Event, tail
from tools.heartbeat_logs.settings import HOUR, Settings
from tools.heartbeat_logs.world import Broker, Client, World

# The order of entries with equal times.
CHANGE, SCAN, GONE, POLL = range(4)
Member = tuple[str, int]


@dataclass(slots=True)
class Exposure:
    """A client that had a route with a broker when the broker was removed."""

    client: str
    topic: str
    outcome: str = "log_end"
    at: int | None = None


@dataclass(slots=True)
class Removal:
    """An eviction, and its exposed clients."""

    eviction: Eviction
    exposures: list[Exposure] = field(default_factory=list)


@dataclass(slots=True)
class Connection:
    """One connection of a client."""

    client: Client
    name: str
    start: int
    end: int
    # Topic -> the brokers in the last received route; and the removed brokers among them, with their exposures.
    has: dict[int, frozenset[Member]] = field(default_factory=dict)
    open: dict[int, list[tuple[Member, Exposure]]] = field(default_factory=lambda: defaultdict(list))
    # Topics whose new revision the client has not received yet.
    due: set[int] = field(default_factory=set)


def topic_name(topic: int) -> str:
    """The name of a topic."""
    return f"topic-{topic:05d}"


class Routes:
    """The routes of one boot and its clients, simulated in the order of time."""

    def __init__(self, settings: Settings, boot: Boot, world: World) -> None:
        self._settings = settings
        self._boot = boot
        self._random = Random(f"clients of {settings.seed}/{boot.boot_id}")
        self._agenda: list[tuple[int, int, int, Change | Connection | int]] = []
        # A counter that makes entries with equal times comparable.
        self._entries = 0
        self._members: dict[int, set[Member]] = defaultdict(set)
        # Topic -> (time, revision) of its last two revisions.
        self._revisions: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._revision = 0
        # Topic -> the hour in which its whole route was last written.
        self._whole_hours: dict[int, int] = {}
        self._alive = 0
        self._late: dict[int, set[int]] = defaultdict(set)
        self._connections: dict[int, Connection] = {}
        self._clients_of: dict[int, list[int]] = defaultdict(list)
        self._accepted = len(world.brokers)
        self.removals: list[Removal] = []
        for client in world.clients:
            if client.nameserver == boot.nameserver:
                for topic in client.topics:
                    self._clients_of[topic].append(client.index)
                self._connect(client, boot.start)
        for number, scan in enumerate(boot.scans):
            self._put(scan, SCAN, number)

    def __repr__(self) -> str:
        return f"<Routes [{self._boot.boot_id} | revision {self._revision} | {len(self._agenda)} to come]>"

    def _put(self, at: int, kind: int, what: Change | Connection | int) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (at, kind, self._entries, what))

    # -- clients ------------------------------------------------------------------------------------------------------

    def _connect(self, client: Client, after: int) -> None:
        """Open a new connection; its first poll comes after the client's phase."""
        self._accepted += 1
        length = self._random.expovariate(1 / self._settings.session) if self._settings.session else None
        start = after + client.phase
        end = self._boot.end if length is None else start + 1 + round(length)
        connection = Connection(client, f"{client.address}#{self._accepted}", start, end)
        self._connections[client.index] = connection
        connection.due.update(client.topics)
        self._put(self._next_poll(connection, start - 1), POLL, connection)
        if end < self._boot.end:
            self._put(end, GONE, connection)

    def _next_poll(self, connection: Connection, after: int) -> int:
        """The time of the connection's first poll after a moment."""
        poll, start = self._settings.poll, connection.start
        number = max(0, (after - start) // poll)
        while (at := self._poll(connection, number)) <= after:
            number += 1
        return at

    def _poll(self, connection: Connection, number: int) -> int:
        nominal = connection.start + number * self._settings.poll
        if not self._settings.jitter:
            return self._boot.taken(nominal)
        part = ((connection.start // 11 + number) * 2_246_822_519 >> 9 & 0xFFFF) / 0x10000
        return self._boot.taken(nominal + int(part * self._settings.jitter * self._settings.poll))

    def _polls_between(self, topic: int, after: int, up_to: int) -> int:
        """Number of responses that clients received for a topic."""
        count = 0
        for index in self._clients_of.get(topic, ()):
            connection = self._connections[index]
            at = self._next_poll(connection, max(after, connection.start - 1))
            while at <= min(up_to, connection.end):
                count += 1
                at = self._next_poll(connection, at)
        return count

    # -- time passes --------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Add the route changes and client events that follow from the chunk's changes."""
        for change in chunk.changes:
            self._put(change.at, CHANGE, change)
        for scan, broker in chunk.late_scans:
            self._late[scan].update(broker.topics)
        while self._agenda and self._agenda[0][0] < chunk.until:
            at, kind, _, what = heapq.heappop(self._agenda)
            if isinstance(what, Change):
                self._change(what, chunk.events)
            elif isinstance(what, int):
                self._scan(at, what, chunk.events)
            elif kind == GONE:
                self._gone(at, what, chunk.events)
            else:
                self._serve(at, what, chunk.events)

    def _change(self, change: Change, events: list[Event]) -> None:
        broker = change.broker
        member = broker.name, broker.broker_id
        self._alive += 1 if change.is_there else -1
        if change.eviction is not None:
            self._remove(change.eviction, member)
        self._revision += 1
        for topic in broker.topics:
            (set.add if change.is_there else set.discard)(self._members[topic], member)
            self._revisions[topic] = [*self._revisions[topic][-1:], (change.at, self._revision)]
            for index in self._clients_of.get(topic, ()):
                connection = self._connections[index]
                if topic not in connection.due:
                    if not connection.due:
                        self._put(self._next_poll(connection, change.at + 1), POLL, connection)
                    connection.due.add(topic)
        line = tail("route", revision=self._revision, changes=self._differences(broker, change.at + 1))
        events.append((change.at + 1, line))

    def _differences(self, broker: Broker, at: int) -> list[dict[str, object]]:
        """The differences of a broker's change in the routes of its topics, merged where they are equal."""
        hour = self._boot.wall(at) // HOUR
        found: dict[str, dict[str, Any]] = {}
        for topic in broker.topics:
            route = self._route(topic)
            if self._whole_hours.get(topic) == hour:
                own = [one for one in route if one["name"] == broker.name]
                difference = {"set": own, "unset": [] if own else [broker.name]}
            else:
                self._whole_hours[topic] = hour
                difference = {"set": route, "whole": True}
            found.setdefault(json.dumps(difference), {"topics": [], **difference})["topics"].append(topic_name(topic))
        return list(found.values())

    def _remove(self, eviction: Eviction, member: Member) -> None:
        removal = Removal(eviction)
        self.removals.append(removal)
        for topic in eviction.broker.topics:
            for index in self._clients_of.get(topic, ()):
                connection = self._connections[index]
                if member in connection.has.get(topic, ()) and connection.end >= eviction.at:
                    exposure = Exposure(connection.name, topic_name(topic))
                    removal.exposures.append(exposure)
                    connection.open[topic].append((member, exposure))

    def _route(self, topic: int) -> list[dict[str, object]]:
        ids: dict[str, list[int]] = defaultdict(list)
        for name, broker_id in sorted(self._members[topic]):
            ids[name].append(broker_id)
        return [{"name": name, "master": 0 in numbers, "ids": numbers} for name, numbers in ids.items()]

    def _scan(self, at: int, number: int, events: list[Event]) -> None:
        events.append((at, tail("scan", scan=number + 1, brokers=self._alive)))
        before = self._boot.scans[number - 1] if number else self._boot.start
        pulls: list[dict[str, object]] = []
        for topic in sorted(self._late.pop(number, ())):
            spans = [*self._revisions[topic], (at, 0)]
            for (since, revision), (end, _) in pairwise(spans):
                count = self._polls_between(topic, max(before, since), end) if end > before else 0
                if count:
                    pulls.append({"topic": topic_name(topic), "revision": revision, "count": count})
        self._rows(at + 1, "pulls", pulls, events)

    def _rows(self, at: int, event: str, rows: list[dict[str, object]], events: list[Event], **fields: object) -> None:
        """Add one line with a list for each name in the rows."""
        if rows:
            lists = {f"{name}s": [row[name] for row in rows] for name in rows[0]}
            events.append((at, tail(event, **fields, **lists)))

    def _gone(self, at: int, connection: Connection, events: list[Event]) -> None:
        events.append((at, tail("client_gone", client=connection.name)))
        for exposures in connection.open.values():
            for _, exposure in exposures:
                exposure.outcome, exposure.at = "client_gone", at
        self._connect(connection.client, at)

    def _serve(self, at: int, connection: Connection, events: list[Event]) -> None:
        if at >= connection.end:
            return
        served: list[dict[str, object]] = []
        for topic in sorted(connection.due):
            if not self._members[topic]:
                # A topic without brokers does not exist: no route is served, and the client keeps its last one.
                continue
            connection.has[topic] = members = frozenset(self._members[topic])
            revision = self._revisions[topic][-1][1]
            served.append({"topic": topic_name(topic), "revision": revision})
            for member, exposure in connection.open.pop(topic, ()):
                exposure.outcome, exposure.at = ("returned" if member in members else "seen"), at
        self._rows(at, "served", served, events, client=connection.name)
        connection.due.clear()
