"""Effects: what a change of the tables has done, handed to the sink once the lock is released.

An effect says itself how it is shown: its names, level and fields. Log, recent events, heartbeat log, audit trail and
metrics choose from that and know no kind of effect, so that a new effect is a new class here. What an effect causes
(closed connections, woken watchers, notices) is the sink's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final, Literal, NamedTuple

from namesrv.routeinfo.records import HEARTBEAT_SECONDS, BrokerAddrInfo, BrokerLiveInfo, Reason
from namesrv.routeinfo.rows import QueueRow, SharedStep, difference, queues_of
from namesrv_remoting.requests import AccessClass

Level = Literal["debug", "info", "warning"]
# topics that one line or event names, and queues of a topic; a broker that dies may have ten thousand
_NAMED_TOPICS: Final = 20
_NAMED_QUEUES: Final = 10
# what a topic of a change takes in memory, in characters of a name
_TOPIC_CHARACTERS: Final = 62


class Refused(NamedTuple):
    """A request that was refused, or would have been if the rule were not only observed."""

    reason: str
    remark: str
    is_observed: bool = False


class Measured(NamedTuple):
    """What an effect adds to a metric: 1 to a counter, or a value to a histogram."""

    name: Literal["renewals", "staleness", "fenced", "takeovers", "quota_exceeded"]
    label: Any
    value: float | None = None


class Effect:
    """What a change has done. A name that is empty: the effect is not shown there."""

    __slots__ = ()

    # in the log, among recent events (20003), in the heartbeat log
    log_name: ClassVar[str] = ""
    event_name: ClassVar[str] = ""
    line_name: ClassVar[str] = ""
    # whether a broker's registration begins or ends
    registration: ClassVar[Literal["begins", "ends", ""]] = ""

    @property
    def broker(self) -> tuple[BrokerAddrInfo, BrokerLiveInfo] | None:
        """The broker that the effect is about."""
        return None

    @property
    def connection(self) -> int | None:
        """The connection of another peer that caused the effect."""
        return None

    # -- log and recent events ----------------------------------------------------------------------------------------

    @property
    def is_news(self) -> bool:
        """False for what happens all the time: neither log nor recent events show it."""
        return True

    @property
    def level(self) -> Level:
        """How much an operator has to look at it."""
        return "info"

    def fields(self) -> dict[str, Any]:
        """What recent events show beyond the broker."""
        return {}

    def log_fields(self) -> dict[str, Any]:
        """What the log shows beyond the broker."""
        return self.fields()

    # -- heartbeat log ------------------------------------------------------------------------------------------------

    @property
    def happened_at(self) -> float | None:
        """The moment on the clock of liveness; None: now."""
        return None

    @property
    def late_seconds(self) -> float:
        """Time that does not count as silence."""
        return 0.0

    def line_fields(self) -> dict[str, Any]:
        """What the heartbeat log shows beyond the broker."""
        return {}

    # -- audit trail --------------------------------------------------------------------------------------------------

    @property
    def is_change(self) -> bool:
        """True for a change that the audit trail shows."""
        return False

    @property
    def is_consequence(self) -> bool:
        """True for a change whose cause comes next."""
        return False

    def changes(self) -> Iterator[dict[str, Any]]:
        """What the audit trail shows, before and after."""
        yield from ()

    def characters(self) -> int:
        """How much the names of peers take in memory while the effect waits to be written."""
        return 0

    def refused(self) -> Refused | None:
        """The refusal that the audit trail shows."""
        return None

    # -- metrics ------------------------------------------------------------------------------------------------------

    def measured(self) -> Measured | None:
        """What the effect adds to a metric."""
        return None


class BrokerEffect(Effect):
    """An effect about one broker."""

    __slots__ = ()

    key: BrokerAddrInfo
    live: BrokerLiveInfo

    @property
    def broker(self) -> tuple[BrokerAddrInfo, BrokerLiveInfo]:
        """The broker that the effect is about."""
        return self.key, self.live

    def characters(self) -> int:
        """How much the names of peers take in memory."""
        return _characters(self.key, self.live)


@dataclass(frozen=True, slots=True)
class Registered(BrokerEffect):
    """A registration was applied, or recognised as the last one again (`unchanged`)."""

    log_name = "broker_registered"
    event_name = "register"
    line_name = "register"
    registration = "begins"

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    kind: Literal["full", "delta", "unchanged"]
    topics: int
    # not in the live table before
    is_new: bool
    # since the last heartbeat or registration; 0 for a new one
    silent_seconds: float
    # its entry until now
    before: BrokerLiveInfo | None = field(default=None, compare=False)

    @property
    def is_news(self) -> bool:
        """False for a heartbeat: slaves send an empty delta with each, to learn of their master."""
        return self.kind == "full" or (self.kind == "delta" and self.topics > 0)

    @property
    def level(self) -> Level:
        """A new broker is information."""
        return "info" if self.is_new else "debug"

    def fields(self) -> dict[str, Any]:
        """Kind and number of topics."""
        return {"kind": self.kind, "topics": self.topics}

    def log_fields(self) -> dict[str, Any]:
        """The same, and whether the broker is new."""
        return {**self.fields(), "new": self.is_new}

    @property
    def happened_at(self) -> float:
        """The moment from which its expiry counts."""
        return self.live.last_update

    def line_fields(self) -> dict[str, Any]:
        """Kind and silence."""
        return {"kind": self.kind, "silent_ms": _ms(self.silent_seconds)}

    @property
    def is_change(self) -> bool:
        """False for the same again, unless another connection sent it."""
        before = self.before
        return self.kind != "unchanged" or before is None or before.connection_id != self.live.connection_id

    def changes(self) -> Iterator[dict[str, Any]]:
        """The registration before and now."""
        now, was = _registration(self.live), None if self.before is None else _registration(self.before)
        if now != was:
            yield {"what": "broker", **address_fields(self.key), "before": was, "after": now}

    def characters(self) -> int:
        """Of both registrations."""
        before = 0 if self.before is None else _characters(self.key, self.before)
        return _characters(self.key, self.live) + before

    def measured(self) -> Measured | None:
        """The registration's lateness: the time since the last heartbeat beyond one interval."""
        if self.is_new:
            return None
        return Measured("renewals", None, max(0.0, self.silent_seconds - HEARTBEAT_SECONDS))


@dataclass(frozen=True, slots=True)
class Unregistered(BrokerEffect):
    """A broker has unregistered."""

    log_name = "broker_unregistered"
    event_name = "unregister"
    line_name = "unregister"

    key: BrokerAddrInfo
    live: BrokerLiveInfo

    @property
    def level(self) -> Level:
        """Its eviction, which follows, is information."""
        return "debug"

    def line_fields(self) -> dict[str, Any]:
        """The kind of request."""
        return {"kind": "unregister"}


@dataclass(frozen=True, slots=True)
class Evicted(BrokerEffect):
    """A broker left the tables. After `silent` its connection is closed, unless it carries others that live."""

    log_name = "broker_evicted"
    event_name = "evict"
    line_name = "evict"
    registration = "ends"

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    reason: Reason
    silent_seconds: float
    # the number of the scan that found it silent
    scan: int | None = None

    @property
    def level(self) -> Level:
        """Information for a broker that unregistered, else a warning."""
        return "info" if self.reason == "unregistered" else "warning"

    def fields(self) -> dict[str, Any]:
        """Reason and silence."""
        return {"reason": self.reason, "silent_ms": round(self.silent_seconds * 1000)}

    @property
    def happened_at(self) -> float:
        """The moment at which it was judged."""
        return self.live.last_update + self.silent_seconds

    def line_fields(self) -> dict[str, Any]:
        """Reason, silence and scan."""
        return {"reason": self.reason, "silent_ms": _ms(self.silent_seconds), "scan": self.scan}

    @property
    def is_change(self) -> bool:
        """True."""
        return True

    def changes(self) -> Iterator[dict[str, Any]]:
        """The registration that ended."""
        was = {"before": _registration(self.live), "after": None}
        yield {"what": "broker", **address_fields(self.key), **was, "reason": self.reason}

    def measured(self) -> Measured:
        """From its last heartbeat to its removal."""
        return Measured("staleness", self.reason, self.silent_seconds)


@dataclass(frozen=True, slots=True)
class Fenced(BrokerEffect):
    """A late removal that was meant for an older registration, and did nothing."""

    log_name = "stale_removal_fenced"
    event_name = "fenced"
    line_name = "fenced"

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    reason: Reason
    scan: int | None = None

    def fields(self) -> dict[str, Any]:
        """The reason of the removal."""
        return {"reason": self.reason}

    def line_fields(self) -> dict[str, Any]:
        """Reason and scan."""
        return {"reason": self.reason, "scan": self.scan}

    def refused(self) -> Refused:
        """The unregister of another owner."""
        remark = f"{self.live.broker_name} at {self.key.broker_addr} has another owner or registered since"
        return Refused("fenced", remark)

    def measured(self) -> Measured:
        """One more."""
        return Measured("fenced", self.reason)


@dataclass(frozen=True, slots=True)
class TakeoverAttempted(BrokerEffect):
    """A request that would take the place of a live broker, or remove it, and whether it was refused."""

    log_name = "takeover_attempted"
    event_name = "takeover_attempted"

    # the live broker of that place
    key: BrokerAddrInfo
    live: BrokerLiveInfo
    # the broker that wants the place; the same one, if it is only to be removed
    broker_name: str
    broker_addr: str
    connection_id: int
    age_seconds: float
    is_refused: bool

    @property
    def connection(self) -> int:
        """That of the other broker."""
        return self.connection_id

    @property
    def level(self) -> Level:
        """Two brokers of one place: an operator should look."""
        return "warning"

    def fields(self) -> dict[str, Any]:
        """How long ago the live broker was last seen, the other broker, and the outcome."""
        return {"age_ms": round(self.age_seconds * 1000), "by": self.broker_addr, "refused": self.is_refused}

    def refused(self) -> Refused:
        """Or what would be refused with another setting."""
        remark = f"the place of {self.live.broker_name} at {self.key.broker_addr}, which is alive"
        return Refused("takeover", remark, not self.is_refused)

    def measured(self) -> Measured:
        """One more, by what became of it."""
        return Measured("takeovers", "refused" if self.is_refused else "warned")


@dataclass(frozen=True, slots=True)
class OverQuota(Effect):
    """A request for more than a cluster, an account or the tables may hold, and whether it was refused."""

    access_class: AccessClass
    # which quota or limit, in a word and in a sentence
    reason: str
    message: str
    is_refused: bool

    def refused(self) -> Refused:
        """Or what would be refused if quotas were enforced."""
        return Refused(f"quota_{self.reason}", self.message, not self.is_refused)

    def measured(self) -> Measured:
        """One more, by class, reason and outcome."""
        outcome = "refused" if self.is_refused else "observed"
        return Measured("quota_exceeded", (self.access_class, self.reason, outcome))


@dataclass(frozen=True, slots=True)
class Scanned(Effect):
    """A search for silent brokers, numbered from 1, has decided: in liveness seconds, among so many brokers."""

    line_name = "scan"

    scan: int
    now: float
    brokers: int

    @property
    def happened_at(self) -> float:
        """The moment of the decision."""
        return self.now

    def line_fields(self) -> dict[str, Any]:
        """Its number, and that of the brokers."""
        return {"scan": self.scan, "brokers": self.brokers}


@dataclass(frozen=True, slots=True)
class HeldUp(Effect):
    """This process was stopped: that time does not count as silence."""

    line_name = "late"

    seconds: float

    @property
    def late_seconds(self) -> float:
        """The time of the stop."""
        return self.seconds

    def line_fields(self) -> dict[str, Any]:
        """The same in milliseconds."""
        return {"late_ms": _ms(self.seconds)}


@dataclass(frozen=True, slots=True)
class RouteChanged(Effect):
    """The routes of these topics (None: of any) are others than before; `revision` counts such changes."""

    log_name = "route_changed"
    event_name = "route"

    topics: AbstractSet[str] | None
    revision: int
    # the same topics by their rows, a thousand at a time: routes can also change with what is in no row
    parts: Sequence[Sequence[SharedStep]] = field(default=(), compare=False)
    # the group whose registration, removal or permission changed the routes; None: a topic or an option changed them
    broker_name: str | None = None

    @property
    def level(self) -> Level:
        """The cause has a line of a higher level."""
        return "debug"

    def fields(self) -> dict[str, Any]:
        """The first topics, how many they are, and the group that caused it."""
        named = None if self.topics is None else tuple(islice(self.topics, _NAMED_TOPICS))
        return {"revision": self.revision, "topics": named, "count": self._count, "broker_name": self.broker_name}

    def log_fields(self) -> dict[str, Any]:
        """How many topics."""
        return {"revision": self.revision, "topics": self._count}

    @property
    def _count(self) -> int | None:
        return None if self.topics is None else len(self.topics)

    @property
    def is_change(self) -> bool:
        """False for routes that an option changed, which has a line of its own."""
        return self.topics is not None

    @property
    def is_consequence(self) -> bool:
        """True: routes change because of a broker or an operator."""
        return True

    def changes(self) -> Iterator[dict[str, Any]]:
        """The first topics with the queues that changed; routes may only depend on what has changed."""
        changed = [each for part in self.parts for each in part if queues_of(each.before) != queues_of(each.after)]
        if changed:
            named = islice(((topic, each) for each in changed for topic in each.topics), _NAMED_TOPICS)
            count = sum(len(each.topics) for each in changed)
            yield {"what": "routes", "topics": count, "named": [_route(*route) for route in named]}

    def characters(self) -> int:
        """Of all topics, roughly."""
        return _TOPIC_CHARACTERS * (self._count or 0)


@dataclass(frozen=True, slots=True)
class WriteWiped(Effect):
    """The write permission of a broker with so many topics was removed, or given back, as an operator wished."""

    broker_name: str
    topics: int
    is_wiped: bool

    @property
    def is_change(self) -> bool:
        """True."""
        return True

    def changes(self) -> Iterator[dict[str, Any]]:
        """Whether the broker may be written to."""
        about = {"what": "write_permission", "broker_name": self.broker_name, "topics": self.topics}
        yield {**about, "before": self.is_wiped, "after": not self.is_wiped}

    def characters(self) -> int:
        """Of the broker's name."""
        return len(self.broker_name)


@dataclass(frozen=True, slots=True)
class MinBrokerIdChanged(Effect):
    """The smallest id of a group changed: its members are to be notified (905)."""

    log_name = "min_broker_id_changed"

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    recipients: tuple[str, ...]
    ha_broker_addr: str | None = None
    offline_broker_addr: str | None = None

    def fields(self) -> dict[str, Any]:
        """The group, its smallest id, and the members to notify."""
        return {
            "broker_name": self.broker_name,
            "min_broker_id": self.min_broker_id,
            "recipients": self.recipients,
        }


def identity(key: BrokerAddrInfo, live: BrokerLiveInfo) -> dict[str, Any]:
    """What names a broker in log and recent events."""
    return {
        "cluster": key.cluster_name,
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "broker_addr": key.broker_addr,
    }


def address_fields(key: BrokerAddrInfo) -> Mapping[str, str]:
    """What names a broker's place in the audit trail."""
    return {"cluster": key.cluster_name, "broker_addr": key.broker_addr}


def _registration(live: BrokerLiveInfo) -> dict[str, Any]:
    """What makes one registration of a broker another one than the last."""
    return {
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "ha_server_addr": live.ha_server_addr,
        "expiry_ms": round(live.expiry_seconds * 1000),
        "agent_id": live.agent_id,
        "connection": live.connection_id,
    }


def _route(topic: str, alike: SharedStep) -> dict[str, Any]:
    gone, new = difference(queues_of(alike.before), queues_of(alike.after))
    return {"topic": topic, "before": _queues(gone), "after": _queues(new)}


def _queues(row: QueueRow) -> list[dict[str, Any]]:
    return [
        {
            "broker_name": queues.broker_name,
            "read": queues.read_queue_nums,
            "write": queues.write_queue_nums,
            "perm": queues.perm,
        }
        for queues in row[:_NAMED_QUEUES]
    ]


def _characters(key: BrokerAddrInfo, live: BrokerLiveInfo) -> int:
    texts: Iterable[str | None] = (*key, live.broker_name, live.ha_server_addr, live.agent_id)
    return sum(len(text or "") for text in texts)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
