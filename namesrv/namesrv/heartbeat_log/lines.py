"""The lines of the heartbeat log.

The writer's half of the contract in docs/heartbeat-log.md. Everything here runs in the writing thread, so it counts
the lines too: what the loop hands over are things that happened, in the order in which they did.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from namesrv.routeinfo.records import (
    BrokerAddrInfo,
    BrokerLiveInfo,
    Evicted,
    Fenced,
    HeldUp,
    Registered,
    Scanned,
    Unregistered,
)
from namesrv.routeinfo.tables import QueueRow, Rerouted, difference, place_in
from namesrv_remoting.bodies.route import BrokerData
from namesrv_runtime.line_log import Item
from namesrv_runtime.line_log import encoded as _json


class Started(NamedTuple):
    """The server is up."""


class Stopped(NamedTuple):
    """The server has left in good order."""

    dropped: int


class RegisteredWith(NamedTuple):
    """A broker has registered, and has so many topics now."""

    effect: Registered
    topics: int


# a heartbeat: who, its entry, and the seconds since it was heard before
Touch = tuple[BrokerAddrInfo, BrokerLiveInfo, float]


@dataclass(slots=True)
class _Beating:
    """What is known of a broker between its lines."""

    # which registration `middle` is made of
    generation: int
    topics: int
    # of a heartbeat's line, from the server's name to the last field's
    middle: bytes
    # of the last beat's line
    seq: int = 0


class RoutesPublished(NamedTuple):
    """The routes of these topics, which are some of those of a change, are others now."""

    revision: int
    topics: Sequence[str]
    rerouted: Rerouted
    # all groups now; values are frozen
    groups: Mapping[str, BrokerData]


class Served(NamedTuple):
    """A connection got this revision of a topic for the first time."""

    client: str
    topics: Sequence[str]
    revisions: Sequence[int]


class ClientGone(NamedTuple):
    """A connection that was served has ended."""

    client: str


class LatePulls(NamedTuple):
    """Answers that may have named a dead broker."""

    topics: Sequence[str]
    revisions: Sequence[int]
    counts: Sequence[int]


@dataclass
class HeartbeatLines:
    """Makes the lines of one boot."""

    nameserver: str
    boot_id: str
    # what shapes staleness, for `start` and `opened`
    shape: dict[str, Any]
    # of the last line
    seq: int = 0
    # milliseconds by which the process was late, in all
    _late_ms: float = 0.0
    _beating: dict[BrokerAddrInfo, _Beating] = field(default_factory=dict)
    # topics whose route is known to whoever has read this file so far; never one that has none
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._who = b'"nameserver":%b,"boot_id":%b,"event":' % (_json(self.nameserver), _json(self.boot_id))
        self._makers: dict[type, Callable[[Item], bytes]] = {
            tuple: self._touched,
            RegisteredWith: self._registered,
            Unregistered: self._unregistered,
            Evicted: self._evicted,
            Fenced: self._fenced,
            Scanned: lambda item: self._line(item, b"scan", _scan_fields(item.what)),
            HeldUp: self._held_up,
            RoutesPublished: self._routes,
            Served: self._served,
            ClientGone: lambda item: self._line(item, b"client_gone", b'"client":' + _json(item.what.client)),
            LatePulls: self._pulls,
            Started: lambda item: self._line(item, b"start", _inner(self.shape)),
            Stopped: self._stopped,
        }

    # -- what the log asks for ----------------------------------------------------------------------------------------

    def line(self, item: Item) -> bytes:
        """The line of an item, with its end."""
        return self._makers[type(item.what)](item)

    def opened(self, item: Item) -> bytes:
        """The first line of every file but the first one; the file can be read without those before it."""
        self._told.clear()
        return self._line(item, b"opened", _inner({**self.shape, "late_ms": round(self._late_ms, 3)}))

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that says how many are missing; their numbers are missing, too."""
        self.seq += count
        self._told.clear()
        return self._line(item, b"dropped", b'"count":%d' % count)

    # -- one kind each ------------------------------------------------------------------------------------------------

    def _line(self, item: Item, event: bytes, fields: bytes) -> bytes:
        self.seq += 1
        return b'{"v":2,"seq":%d,"ts_ms":%d,"mono_ms":%.3f,%b"%b",%b}\n' % (
            self.seq,
            round(item.wall * 1000),
            item.monotonic * 1000,
            self._who,
            event,
            fields,
        )

    def _broker(self, key: BrokerAddrInfo, live: BrokerLiveInfo, topics: int | None = None) -> bytes:
        if topics is None:
            beating = self._beating.get(key)
            topics = 0 if beating is None else beating.topics
        return b'%b,"topics":%d' % (_identity(key, live), topics)

    def _touched(self, item: Item) -> bytes:
        key, live, silent_seconds = item.what
        beating = self._beating.get(key)
        if beating is None or beating.generation != live.generation:
            beating = self._learn(key, live, 0 if beating is None else beating.topics)
        # as `_line` does, with all in it that stays the same
        self.seq = beating.seq = self.seq + 1
        return b'{"v":2,"seq":%d,"ts_ms":%d,"mono_ms":%.3f,%b%.3f}\n' % (
            self.seq,
            item.wall * 1000 + 0.5,
            item.monotonic * 1000,
            beating.middle,
            silent_seconds * 1000,
        )

    def _learn(self, key: BrokerAddrInfo, live: BrokerLiveInfo, topics: int) -> _Beating:
        middle = b'%b"heartbeat",%b,"kind":"touch","silent_ms":' % (self._who, self._broker(key, live, topics))
        beating = self._beating[key] = _Beating(live.generation, topics, middle)
        return beating

    def _registered(self, item: Item) -> bytes:
        effect, topics = item.what
        fields = b'%b,"kind":"%b","silent_ms":%.3f' % (
            self._broker(effect.key, effect.live, topics),
            effect.kind.encode(),
            effect.silent_seconds * 1000,
        )
        line = self._line(item, b"register", fields)
        self._learn(effect.key, effect.live, topics).seq = self.seq
        return line

    def _unregistered(self, item: Item) -> bytes:
        effect: Unregistered = item.what
        return self._line(item, b"unregister", self._broker(effect.key, effect.live) + b',"kind":"unregister"')

    def _evicted(self, item: Item) -> bytes:
        effect: Evicted = item.what
        broker = self._broker(effect.key, effect.live)
        beating = self._beating.pop(effect.key, None)
        fields = b'%b,"reason":"%b","silent_ms":%.3f,"last_seq":%b,"scan":%b' % (
            broker,
            effect.reason.encode(),
            effect.silent_seconds * 1000,
            _json(None if beating is None else beating.seq),
            _json(effect.scan),
        )
        return self._line(item, b"evict", fields)

    def _fenced(self, item: Item) -> bytes:
        effect: Fenced = item.what
        fields = b'%b,"reason":"%b","scan":%b' % (
            self._broker(effect.key, effect.live),
            effect.reason.encode(),
            _json(effect.scan),
        )
        return self._line(item, b"fenced", fields)

    def _held_up(self, item: Item) -> bytes:
        late_ms = item.what.seconds * 1000
        self._late_ms += late_ms
        return self._line(item, b"late", b'"late_ms":%.3f' % late_ms)

    def _routes(self, item: Item) -> bytes:
        published: RoutesPublished = item.what
        told = self._told
        # by the rows, which topics with the same queues share, and by what it says
        differences: dict[tuple[int, int], bytes] = {}
        topics_of: dict[bytes, list[str]] = {}
        for topic in published.topics:
            before, after = published.rerouted.before[topic], published.rerouted.after.get(topic)
            rows = (id(before) if topic in told else 0, id(after))
            fields = differences.get(rows)
            if fields is None:
                fields = _difference(before, after, published) if topic in told else _whole(after, published)
                differences[rows] = fields
            topics_of.setdefault(fields, []).append(topic)
            if after is None:
                told.discard(topic)
            else:
                told.add(topic)
        changes = [b'{"topics":%b%b}' % (_json(sorted(topics)), fields) for fields, topics in topics_of.items()]
        return self._line(item, b"route", b'"revision":%d,"changes":[%b]' % (published.revision, b",".join(changes)))

    def _served(self, item: Item) -> bytes:
        return self._line(item, b"served", _inner(item.what._asdict()))

    def _pulls(self, item: Item) -> bytes:
        return self._line(item, b"pulls", _inner(item.what._asdict()))

    def _stopped(self, item: Item) -> bytes:
        fields = {"version": self.shape["version"], "dropped": item.what.dropped}
        return self._line(item, b"stop", _inner(fields))


def _whole(row: QueueRow | None, published: RoutesPublished) -> bytes:
    return b',"set":%b,"whole":true' % _spelt(_names(row), published.groups)


def _difference(before: QueueRow | None, after: QueueRow | None, published: RoutesPublished) -> bytes:
    gone, new = map(_names, difference(before or (), after or ()))
    changed = new - gone
    for name, group in published.rerouted.groups_before.items():
        is_there = place_in(after or (), name)[1]
        if group is not None and is_there and group.logged() != published.groups[name].logged():
            changed.add(name)
    spelt = b',"set":%b' % _spelt(changed, published.groups) if changed else b""
    left = sorted(gone - new)
    return b'%b,"unset":%b' % (spelt, _json(left)) if left else spelt


def _names(row: QueueRow | None) -> set[str]:
    return {queues.broker_name for queues in row or ()}


def _spelt(names: set[str], groups: Mapping[str, BrokerData]) -> bytes:
    return _json([groups[name].logged() for name in sorted(names)])


def _inner(fields: dict[str, Any]) -> bytes:
    return _json(fields)[1:-1]


def _scan_fields(scanned: Scanned) -> bytes:
    return b'"scan":%d,"brokers":%d' % (scanned.scan, scanned.brokers)


def _identity(key: BrokerAddrInfo, live: BrokerLiveInfo) -> bytes:
    version = live.data_version
    return _inner(
        {
            "cluster": key.cluster_name,
            "broker_name": live.broker_name,
            "broker_id": live.broker_id,
            "broker_addr": key.broker_addr,
            "data_version": None
            if version is None
            else f"{version.state_version}/{version.timestamp}/{version.counter}",
            "expiry_ms": round(live.expiry_seconds * 1000),
            "agent_id": live.agent_id,
        }
    )
