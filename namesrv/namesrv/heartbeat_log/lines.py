"""What does a line of the heartbeat log look like?

The writer's half of the contract in docs/heartbeat-log.md. Everything here runs in the writing thread, so it counts
the lines too: what the loop hands over are things that happened, in the order in which they did.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

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
from namesrv.routeinfo.tables import QueueRow
from namesrv_remoting.bodies.route import BrokerData
from namesrv_runtime.line_log import Item

_json: Final = msgspec.json.encode


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
    """The routes of these topics are now made of these rows (None: there is none)."""

    revision: int
    topics: Sequence[str]
    rows: Sequence[QueueRow | None]
    # the groups at that moment; values are frozen
    groups: dict[str, BrokerData]


class Served(NamedTuple):
    """A connection got this revision of a topic for the first time."""

    client: str
    topics: Sequence[str]
    revisions: Sequence[int]


class ClientGone(NamedTuple):
    """A connection that was served has ended."""

    client: str


class LatePulls(NamedTuple):
    """Answers that may have named a dead broker: (topic, revision, count)."""

    counts: Sequence[tuple[str, int, int]]


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
    # brokers of routes as they are spelt, by the names in them, as long as the groups are these
    _spelt: dict[tuple[str, ...], bytes] = field(default_factory=dict)
    _spelt_groups: dict[str, BrokerData] | None = None

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

    def lines(self, item: Item) -> bytes:
        """The lines of an item, each with its end."""
        return self._makers[type(item.what)](item)

    def opened(self, item: Item) -> bytes:
        """The first line of every file but the first one."""
        return self._line(item, b"opened", _inner({**self.shape, "late_ms": round(self._late_ms, 3)}))

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that says how many are missing; their numbers are missing, too."""
        self.seq += count
        return self._line(item, b"dropped", b'"count":%d' % count)

    # -- one kind each ------------------------------------------------------------------------------------------------

    def _line(self, item: Item, event: bytes, fields: bytes) -> bytes:
        self.seq += 1
        return b'{"v":1,"seq":%d,"ts_ms":%d,"mono_ms":%.3f,%b"%b",%b}\n' % (
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
        return b'{"v":1,"seq":%d,"ts_ms":%d,"mono_ms":%.3f,%b%.3f}\n' % (
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
        if published.groups is not self._spelt_groups:
            self._spelt_groups = published.groups
            self._spelt = {}
        spelt = self._spelt
        # as `_line` does, with all in it that stays the same
        before = b',"ts_ms":%d,"mono_ms":%.3f,%b"route","topic":' % (
            round(item.wall * 1000),
            item.monotonic * 1000,
            self._who,
        )
        after = b',"revision":%d,"brokers":' % published.revision
        made = []
        seq = self.seq
        for topic, row in zip(published.topics, published.rows, strict=True):
            names = tuple([queues.broker_name for queues in row or ()])
            brokers = spelt.get(names)
            if brokers is None:
                brokers = spelt[names] = _json(route_brokers(names, published.groups))
            seq += 1
            made.append(b'{"v":1,"seq":%d%b%b%b%b}\n' % (seq, before, _json(topic), after, brokers))
        self.seq = seq
        return b"".join(made)

    def _served(self, item: Item) -> bytes:
        served: Served = item.what
        client = _json(served.client)
        return b"".join(
            self._line(item, b"served", b'"client":%b,"topic":%b,"revision":%d' % (client, _json(topic), revision))
            for topic, revision in zip(served.topics, served.revisions, strict=True)
        )

    def _pulls(self, item: Item) -> bytes:
        return b"".join(
            self._line(item, b"pulls", b'"topic":%b,"revision":%d,"count":%d' % (_json(topic), revision, count))
            for topic, revision, count in item.what.counts
        )

    def _stopped(self, item: Item) -> bytes:
        fields = {"version": self.shape["version"], "dropped": item.what.dropped}
        return self._line(item, b"stop", _inner(fields))


def route_brokers(names: Iterable[str], groups: dict[str, BrokerData]) -> list[dict[str, Any]]:
    """The brokers of these groups as a route has them, by name."""
    return [groups[name].logged() for name in sorted(set(names)) if name in groups]


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
