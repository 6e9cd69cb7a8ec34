"""Encoding of heartbeat log lines, in the thread that writes them.

The contract is docs/heartbeat-log.md. The thread numbers the lines as well: the event loop passes it events in the
order in which they happened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from namesrv.routeinfo.tables.effects import Effect, Evicted, Registered
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.rows import QueueRow, RowChange, difference, place_in, queues_of
from namesrv_remoting.bodies.route import BrokerData
from namesrv_runtime.line_log.queue import Item, Light
from namesrv_runtime.line_log.writer import Encoder
from namesrv_runtime.line_log.writer import encoded as _json

_encode_lines: Final = msgspec.json.Encoder().encode_lines
# Adding this number and subtracting it again rounds to an integer: floats of its size have no fraction.
_ROUNDING: Final = 1.5 * 2.0**52


class EventLine(NamedTuple):
    """An event that is written unchanged, with its fields."""

    event: bytes
    fields: Mapping[str, Any]


class EffectLine(NamedTuple):
    """An effect, with the current number of its broker's topics; None: the number is unchanged."""

    effect: Effect
    topics: int | None = None


@dataclass(slots=True)
class _KnownBroker:
    """The known values of a broker for its heartbeat lines."""

    # The registration from which `head` was made.
    generation: int
    topics: int
    # A part of the heartbeat line: the server's name, and all fields that follow except for the silence.
    head: Raw
    # The sequence number of the last line of a registration or heartbeat.
    seq: int = 0


class _HeartbeatLine(msgspec.Struct, gc=False):
    """The line of a heartbeat; `nameserver` also contains all other constant fields."""

    v: int
    seq: int
    ts_ms: int
    mono_ms: float
    nameserver: Raw
    silent_ms: float


class _ServedLine(msgspec.Struct, gc=False):
    """The line of a client's first response with a route at a revision; `nameserver` contains the constant fields."""

    v: int
    seq: int
    ts_ms: int
    mono_ms: float
    nameserver: Raw
    client: str | Raw
    topics: tuple[str | Raw]
    revisions: tuple[int]


class RoutesPublished(NamedTuple):
    """New routes of these topics, which are some or all of the topics that one change touched."""

    revision: int
    topics: Sequence[RowChange]
    # The changed groups before the change.
    groups_before: Mapping[str, BrokerData | None]
    # All groups after the change; the values are frozen.
    groups: Mapping[str, BrokerData]


@dataclass
class HeartbeatLines(Encoder):
    """Encodes the lines of one boot.

    A heartbeat is a light item: its two times, the broker's key, the live entry, and the seconds since the previous
    heartbeat. A client's first response with a route is also a light item: its two times, the connection's name, the
    topic and the revision.
    """

    nameserver: str
    boot_id: str
    # The settings that shape staleness, for `start` and `opened`.
    shape: dict[str, Any]
    # The sequence number of the last line.
    seq: int = 0
    # Sum of the milliseconds by which the process was late.
    _late_ms: float = 0.0
    _brokers: dict[BrokerAddrInfo, _KnownBroker] = field(default_factory=dict)
    # The same values by the generation of the registration, which is found faster than a key of two texts.
    _brokers_by_generation: dict[int, _KnownBroker] = field(default_factory=dict)
    # Topics whose route a reader of this file knows so far; never a topic without a route.
    _known_topics: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # The bytes between the times and the event.
        self._who = b'%b,"boot_id":%b,"event":' % (_json(self.nameserver), _json(self.boot_id))
        self._served = Raw(self._who + b'"served"')

    def line(self, item: Item | Light) -> bytes:
        """Return the line of an item with its newline."""
        return self.lines((item,))

    def lines(self, items: Sequence[Item | Light]) -> bytes:
        """Return the lines of several items."""
        made: list[_HeartbeatLine | _ServedLine | Raw] = []
        add, find, seq = made.append, self._brokers_by_generation.get, self.seq
        for item in items:
            if type(item) is Item:
                self.seq = seq
                add(Raw(self._line_of(item)))
                seq = self.seq
                continue
            wall, monotonic, who, what, number = item
            seq += 1
            # Whole milliseconds, and milliseconds rounded to whole microseconds.
            ts_ms, mono_ms = int(wall * 1000 + 0.5), (monotonic * 1e6 + _ROUNDING - _ROUNDING) / 1000
            if type(who) is str:
                add(_ServedLine(2, seq, ts_ms, mono_ms, self._served, who, (what,), (number,)))
                continue
            known = find(what.generation) or self._learn(who, what)
            known.seq = seq
            add(_HeartbeatLine(2, seq, ts_ms, mono_ms, known.head, (number * 1e6 + _ROUNDING - _ROUNDING) / 1000))
        self.seq = seq
        return _in_ascii(made)

    def opened(self, item: Item) -> bytes:
        """Return the first line of every file but the first one; the file can be read without earlier ones."""
        self._known_topics.clear()
        fields = _inner({**self.shape, "late_ms": round(self._late_ms, 3)})
        return self._line(item, b"opened", fields) + b"\n"

    def dropped(self, count: int, item: Item) -> bytes:
        """Return the line about dropped lines; the sequence skips their numbers."""
        self.seq += count
        self._known_topics.clear()
        return self._line(item, b"dropped", b'"count":%d' % count) + b"\n"

    def _line_of(self, item: Item) -> bytes:
        what = item.what
        if isinstance(what, RoutesPublished):
            return self._routes(item, what)
        if isinstance(what, EffectLine):
            return self._effect(item, what)
        return self._line(item, what.event, _inner(what.fields))

    def _effect(self, item: Item, what: EffectLine) -> bytes:
        effect = what.effect
        self._late_ms += effect.late_seconds * 1000
        line = self._line(item, effect.line_name.encode(), _inner({**self._broker(what), **effect.line_fields()}))
        if isinstance(effect, Registered):
            self._learn(effect.key, effect.live, what.topics).seq = self.seq
        return line

    def _line(self, item: Item, event: bytes, fields: bytes) -> bytes:
        self.seq += 1
        return b'{"v":2,"seq":%d,"ts_ms":%d,"mono_ms":%.3f,"nameserver":%b"%b",%b}' % (
            self.seq,
            round(item.wall * 1000),
            item.monotonic * 1000,
            self._who,
            event,
            fields,
        )

    def _broker(self, what: EffectLine) -> dict[str, Any]:
        """Return the fields of an effect's broker; at a registration's end with the number of its last heartbeat."""
        if what.effect.broker is None:
            return {}
        key, live = what.effect.broker
        known, topics = self._brokers.get(key), what.topics
        if topics is None:
            topics = 0 if known is None else known.topics
        fields = _identity(key, live, topics)
        if isinstance(what.effect, Evicted):
            self._forget(key)
            fields["last_seq"] = None if known is None else known.seq
        return fields

    def _learn(self, key: BrokerAddrInfo, live: BrokerLiveInfo, topics: int | None = None) -> _KnownBroker:
        before = self._forget(key)
        if topics is None:
            topics = 0 if before is None else before.topics
        fields = _inner({**_identity(key, live, topics), "kind": "touch"})
        known = _KnownBroker(live.generation, topics, Raw(b'%b"heartbeat",%b' % (self._who, fields)))
        self._brokers[key] = self._brokers_by_generation[live.generation] = known
        return known

    def _forget(self, key: BrokerAddrInfo) -> _KnownBroker | None:
        known = self._brokers.pop(key, None)
        if known is not None:
            del self._brokers_by_generation[known.generation]
        return known

    def _routes(self, item: Item, published: RoutesPublished) -> bytes:
        known_topics = self._known_topics
        topics_of: dict[bytes, list[str]] = {}
        for members, row_before, row in published.topics:
            before, after = queues_of(row_before), queues_of(row)
            new = () if known_topics.issuperset(members) else [topic for topic in members if topic not in known_topics]
            if len(new) < len(members):
                known = [topic for topic in members if topic in known_topics] if new else members
                topics_of.setdefault(_difference(before, after, published), []).extend(known)
            if new:
                topics_of.setdefault(_whole(after, published), []).extend(new)
            if row is None:
                known_topics.difference_update(members)
            elif new:
                known_topics.update(new)
        changes = [b'{"topics":%b%b}' % (_json(topics), fields) for fields, topics in topics_of.items()]
        return self._line(item, b"route", b'"revision":%d,"changes":[%b]' % (published.revision, b",".join(changes)))


def _in_ascii(made: Sequence[_HeartbeatLine | _ServedLine | Raw]) -> bytes:
    try:
        spelt = _encode_lines(made)
        if spelt.isascii() and b"\x7f" not in spelt:
            return spelt
    except UnicodeEncodeError:  # the text holds half of a surrogate pair
        pass
    for line in made:
        if type(line) is _ServedLine:
            line.client, line.topics = Raw(_json(line.client)), (Raw(_json(line.topics[0])),)
    return _encode_lines(made)


def _whole(row: QueueRow, published: RoutesPublished) -> bytes:
    return b',"set":%b,"whole":true' % _spelt(_names(row), published.groups)


def _difference(before: QueueRow, after: QueueRow, published: RoutesPublished) -> bytes:
    gone, new = map(_names, difference(before, after))
    changed = new - gone
    for name, group in published.groups_before.items():
        is_there = place_in(after, name)[1]
        if group is not None and is_there and group.logged() != published.groups[name].logged():
            changed.add(name)
    spelt = b',"set":%b' % _spelt(changed, published.groups) if changed else b""
    left = sorted(gone - new)
    return b'%b,"unset":%b' % (spelt, _json(left)) if left else spelt


def _names(row: QueueRow) -> set[str]:
    return {queues.broker_name for queues in row}


def _spelt(names: set[str], groups: Mapping[str, BrokerData]) -> bytes:
    return _json([groups[name].logged() for name in sorted(names)])


def _inner(fields: Mapping[str, Any]) -> bytes:
    return _json(fields)[1:-1]


def _identity(key: BrokerAddrInfo, live: BrokerLiveInfo, topics: int) -> dict[str, Any]:
    version = live.data_version
    return {
        "cluster": key.cluster_name,
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "broker_addr": key.broker_addr,
        "data_version": version and f"{version.state_version}/{version.timestamp}/{version.counter}",
        "expiry_ms": round(live.expiry_seconds * 1000),
        "agent_id": live.agent_id,
        "topics": topics,
    }
