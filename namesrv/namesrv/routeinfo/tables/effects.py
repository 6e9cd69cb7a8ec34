"""Effects: values that describe what the manager did or refused, passed to the sink once the lock is released.

An effect is a change of the tables, a refusal, an attempt that was only observed, a scan, or a stop of this process.
Each effect knows how it is shown: its names, level and fields. Log, recent events, heartbeat log, audit trail and
metrics show an effect by these, so that a new effect is a new class here. Two of them also look at classes: the
heartbeat log follows each broker from `Registered` to `Evicted`, and writes the counted pulls at each `Scanned`; the
metrics count each `Registered`. The consequences of an effect (closed connections, woken watches, notices) belong to
the sink and its observers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final, Literal, NamedTuple

from msgspec import to_builtins

from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, Reason
from namesrv.routeinfo.tables.rows import QueueRow, RowChange, difference, queues_of
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses
from namesrv_remoting.codes import HEARTBEAT_SECONDS
from namesrv_remoting.requests import AccessClass

Level = Literal["debug", "info", "warning"]
# The kinds of changes in the audit trail: by the current request, or by the server itself; a consequence, which is
# followed by the effect that caused it; and an expiry, which time has made and no request, even if it is made while a
# request is handled.
Audited = Literal["", "change", "consequence", "expiry"]
# Topics that one line or event names, and queues shown of a topic; a broker that dies may have ten thousand topics.
_NAMED_TOPICS: Final = 20
_NAMED_QUEUES: Final = 10
# Memory of one topic in a change, expressed in characters of a name.
_TOPIC_CHARACTERS: Final = 62


class Refused(NamedTuple):
    """A refused request; `is_observed`: the rule was only observed and the request was carried out."""

    reason: str
    remark: str
    is_observed: bool = False


class Measured(NamedTuple):
    """The contribution of an effect to a metric: 1 to a counter, or a value to a histogram."""

    name: Literal["renewals", "staleness", "fenced", "takeovers", "quota_exceeded"]
    label: Any
    value: float | None = None


class Effect:
    """The description of a change. An effect with an empty name for an output is not shown there."""

    __slots__ = ()

    # Names in the log, among recent events (20003), and in the heartbeat log.
    log_name: ClassVar[str] = ""
    event_name: ClassVar[str] = ""
    line_name: ClassVar[str] = ""

    @property
    def broker(self) -> tuple[BrokerAddrInfo, BrokerLiveInfo] | None:
        """The broker of the effect, if there is one."""
        return None

    @property
    def connection(self) -> int | None:
        """The connection of another peer that caused the effect."""
        return None

    # -- log and recent events ----------------------------------------------------------------------------------------

    @property
    def is_news(self) -> bool:
        """False for frequent effects, which neither log nor recent events show."""
        return True

    @property
    def level(self) -> Level:
        """The log level of the effect."""
        return "info"

    def fields(self) -> dict[str, Any]:
        """Return the fields of a recent event beyond the broker."""
        return {}

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of the log line beyond the broker."""
        return self.fields()

    # -- heartbeat log ------------------------------------------------------------------------------------------------

    @property
    def happened_at(self) -> float | None:
        """The time of the effect on the liveness clock; None means now."""
        return None

    @property
    def late_seconds(self) -> float:
        """Seconds that do not count as silence."""
        return 0.0

    def line_fields(self) -> dict[str, Any]:
        """Return the fields of the heartbeat log line beyond the broker."""
        return {}

    # -- audit trail --------------------------------------------------------------------------------------------------

    @property
    def audited(self) -> Audited:
        """The kind of change that the audit trail shows; empty for an effect that is no change."""
        return ""

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of the audit trail with the state before and after."""
        yield from ()

    def characters(self) -> int:
        """Return the memory of peers' names, in characters, while the effect waits to be written."""
        return 0

    def refused(self) -> Refused | None:
        """Return the refusal that the audit trail shows, if the effect is one."""
        return None

    # -- metrics ------------------------------------------------------------------------------------------------------

    def measured(self) -> Measured | None:
        """Return the contribution of the effect to a metric."""
        return None


@dataclass(frozen=True, slots=True)
class BrokerEffect(Effect):
    """An effect about one broker."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo

    @property
    def broker(self) -> tuple[BrokerAddrInfo, BrokerLiveInfo]:
        """The broker of the effect."""
        return self.key, self.live

    def characters(self) -> int:
        """Return the memory of peers' names, in characters."""
        return _characters(self.key, self.live)


@dataclass(frozen=True, slots=True)
class Registered(BrokerEffect):
    """A registration was applied, or recognised as equal to the last one (`unchanged`)."""

    log_name = "broker_registered"
    event_name = "register"
    line_name = "register"

    kind: Literal["full", "delta", "unchanged"]
    # Number of topics that the request names, also of those that a delta deletes; of an unchanged registration, whose
    # body is not decoded, the broker's topics.
    topics: int
    # True if the broker was not in the live table before.
    is_new: bool
    # Seconds since the last heartbeat or registration; 0 for a new broker.
    silent_seconds: float
    # The live entry before the registration.
    before: BrokerLiveInfo | None = field(default=None, compare=False)

    @property
    def is_news(self) -> bool:
        """False for heartbeats: unchanged registrations, and empty deltas, whose response names a slave's master."""
        return self.kind == "full" or (self.kind == "delta" and self.topics > 0)

    @property
    def has_new_id(self) -> bool:
        """True if the broker was registered with another id, as a slave that was elected master was."""
        return self.before is not None and self.before.broker_id != self.live.broker_id

    @property
    def level(self) -> Level:
        """Info for a new broker, and for one with a new id."""
        return "info" if self.is_new or self.has_new_id else "debug"

    def fields(self) -> dict[str, Any]:
        """Return kind and number of topics."""
        return {"kind": self.kind, "topics": self.topics}

    def log_fields(self) -> dict[str, Any]:
        """Return the same fields, and whether the broker is new."""
        return {**self.fields(), "new": self.is_new}

    @property
    def happened_at(self) -> float:
        """The time from which the broker's expiry counts."""
        return self.live.last_update

    def line_fields(self) -> dict[str, Any]:
        """Return kind and silence."""
        return {"kind": self.kind, "silent_ms": _ms(self.silent_seconds)}

    @property
    def audited(self) -> Audited:
        """No change for an unchanged registration, unless another connection sent it."""
        before = self.before
        is_change = self.kind != "unchanged" or before is None or before.connection_id != self.live.connection_id
        return "change" if is_change else ""

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the registration before and after."""
        now, was = _registration(self.live), None if self.before is None else _registration(self.before)
        if now != was:
            yield {"what": "broker", **address_fields(self.key), "before": was, "after": now}

    def characters(self) -> int:
        """Return the memory of both registrations."""
        before = 0 if self.before is None else _characters(self.key, self.before)
        return _characters(self.key, self.live) + before

    def measured(self) -> Measured | None:
        """Return the lateness of the registration: the time since the last heartbeat beyond one interval."""
        if self.is_new:
            return None
        return Measured("renewals", None, max(0.0, self.silent_seconds - HEARTBEAT_SECONDS))


@dataclass(frozen=True, slots=True)
class Unregistered(BrokerEffect):
    """A broker has unregistered."""

    log_name = "broker_unregistered"
    event_name = "unregister"
    line_name = "unregister"
    # The eviction that follows is logged at level info.
    level: ClassVar[Level] = "debug"

    def line_fields(self) -> dict[str, Any]:
        """Return the kind of request."""
        return {"kind": "unregister"}


@dataclass(frozen=True, slots=True)
class Evicted(BrokerEffect):
    """A broker left the tables. The sink closes the connection of a silent broker, unless live brokers share it."""

    log_name = "broker_evicted"
    event_name = "evict"
    line_name = "evict"
    audited: ClassVar[Audited] = "change"

    reason: Reason
    silent_seconds: float
    # The number of the scan that found the silent broker.
    scan: int | None = None
    # The revision of the routes without the broker; 0 if no route changed.
    revision: int = field(default=0, compare=False)

    @property
    def level(self) -> Level:
        """Info for a broker that unregistered, otherwise a warning."""
        return "info" if self.reason == "unregistered" else "warning"

    def fields(self) -> dict[str, Any]:
        """Return reason and silence."""
        return {"reason": self.reason, "silent_ms": round(self.silent_seconds * 1000)}

    @property
    def happened_at(self) -> float:
        """The time of the decision."""
        return self.live.last_update + self.silent_seconds

    def line_fields(self) -> dict[str, Any]:
        """Return reason, silence and scan."""
        return {"reason": self.reason, "silent_ms": _ms(self.silent_seconds), "scan": self.scan}

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the registration that ended."""
        was = {"before": _registration(self.live), "after": None}
        yield {"what": "broker", **address_fields(self.key), **was, "reason": self.reason}

    def measured(self) -> Measured:
        """Return the time from the last heartbeat to the removal."""
        return Measured("staleness", self.reason, self.silent_seconds)


@dataclass(frozen=True, slots=True)
class Fenced(BrokerEffect):
    """A removal was ignored: the broker was seen again since, or an unregister request was late or of another agent."""

    log_name = "stale_removal_fenced"
    event_name = "fenced"
    line_name = "fenced"

    reason: Reason
    scan: int | None = None

    def fields(self) -> dict[str, Any]:
        """Return the reason of the removal."""
        return {"reason": self.reason}

    def line_fields(self) -> dict[str, Any]:
        """Return reason and scan."""
        return {"reason": self.reason, "scan": self.scan}

    def refused(self) -> Refused:
        """Return the refusal, which the audit trail shows for requests, not for removals by the server itself."""
        remark = f"{self.live.broker_name} at {self.key.broker_addr} has another owner or registered since"
        return Refused("fenced", remark)

    def measured(self) -> Measured:
        """Return one count."""
        return Measured("fenced", self.reason)


@dataclass(frozen=True, slots=True)
class TakeoverAttempted(BrokerEffect):
    """A request would have taken the place of a live broker, or removed it; the effect says whether it was refused."""

    log_name = "takeover_attempted"
    event_name = "takeover_attempted"
    # Two brokers compete for one place, and an operator should look.
    level: ClassVar[Level] = "warning"

    # `key` and `live` are the live broker that has the place. The following fields are the broker that requests the
    # place: the live broker itself if the request would only remove it.
    broker_name: str
    broker_addr: str
    connection_id: int
    age_seconds: float
    is_refused: bool

    @property
    def connection(self) -> int:
        """The connection of the other broker."""
        return self.connection_id

    def fields(self) -> dict[str, Any]:
        """Return the time since the live broker was last seen, the other broker, and the outcome."""
        return {"age_ms": round(self.age_seconds * 1000), "by": self.broker_addr, "refused": self.is_refused}

    def refused(self) -> Refused:
        """Return the refusal; it is marked as observed if the takeover was only logged."""
        remark = f"the place of {self.live.broker_name} at {self.key.broker_addr}, which is alive"
        return Refused("takeover", remark, not self.is_refused)

    def measured(self) -> Measured:
        """Return one count, by outcome."""
        return Measured("takeovers", "refused" if self.is_refused else "warned")


@dataclass(frozen=True, slots=True)
class OverQuota(Effect):
    """A request exceeds a quota of a cluster or account, or a limit of the tables; it may have been refused."""

    access_class: AccessClass
    # The quota or limit, as a word and as a sentence.
    reason: str
    message: str
    is_refused: bool

    def refused(self) -> Refused:
        """Return the refusal; it is marked as observed if quotas are only observed."""
        return Refused(f"quota_{self.reason}", self.message, not self.is_refused)

    def measured(self) -> Measured:
        """Return one count, by class, reason and outcome."""
        outcome = "refused" if self.is_refused else "observed"
        return Measured("quota_exceeded", (self.access_class, self.reason, outcome))


@dataclass(frozen=True, slots=True)
class Scanned(Effect):
    """A scan for silent brokers, numbered from 1, with its time in liveness seconds and the number of live brokers."""

    line_name = "scan"

    scan: int
    now: float
    brokers: int

    @property
    def happened_at(self) -> float:
        """The time of the scan's decision."""
        return self.now

    def line_fields(self) -> dict[str, Any]:
        """Return the number of the scan and the number of brokers."""
        return {"scan": self.scan, "brokers": self.brokers}


@dataclass(frozen=True, slots=True)
class ProcessStopped(Effect):
    """This process was stopped, as by SIGSTOP, for a time that does not count as a broker's silence."""

    line_name = "late"

    seconds: float

    @property
    def late_seconds(self) -> float:
        """The seconds of the stop."""
        return self.seconds

    def line_fields(self) -> dict[str, Any]:
        """Return the stop in milliseconds."""
        return {"late_ms": _ms(self.seconds)}


@dataclass(frozen=True, slots=True)
class RouteChanged(Effect):
    """The routes of these topics (None: of any topic) changed; `revision` numbers such changes."""

    log_name = "route_changed"
    event_name = "route"
    # The cause of the change has a line of a higher level.
    level: ClassVar[Level] = "debug"

    topics: AbstractSet[str] | None
    revision: int
    # The same topics grouped by their rows, a thousand at a time; routes can also change without a change in a row.
    chunks: Sequence[Sequence[RowChange]] = field(default=(), compare=False)
    # The group whose registration, removal or permission changed the routes; None if a topic or an option changed them.
    broker_name: str | None = None
    # True if some of the topics have no route any more.
    topics_lost: bool = field(default=False, compare=False)

    def fields(self) -> dict[str, Any]:
        """Return the first topics, their number, and the group that caused the change."""
        named = None if self.topics is None else tuple(islice(self.topics, _NAMED_TOPICS))
        return {"revision": self.revision, "topics": named, "count": self._count, "broker_name": self.broker_name}

    def log_fields(self) -> dict[str, Any]:
        """Return the number of topics."""
        return {"revision": self.revision, "topics": self._count}

    @property
    def _count(self) -> int | None:
        return None if self.topics is None else len(self.topics)

    @property
    def audited(self) -> Audited:
        """A consequence, but no change for routes that an option changed: the option has a line of its own."""
        return "" if self.topics is None else "consequence"

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the first topics whose queues changed; other routes depend on changed groups only."""
        changed = [each for chunk in self.chunks for each in chunk if queues_of(each.before) != queues_of(each.after)]
        if changed:
            named = islice(((topic, each) for each in changed for topic in each.topics), _NAMED_TOPICS)
            count = sum(len(each.topics) for each in changed)
            yield {"what": "routes", "topics": count, "named": [_route(*route) for route in named]}

    def characters(self) -> int:
        """Return the approximate memory of all topics."""
        return _TOPIC_CHARACTERS * (self._count or 0)


@dataclass(frozen=True, slots=True)
class WritePermissionChanged(Effect):
    """The write permission of a broker group was removed, or its removal ended.

    `topics` is the number of the group's topics, 0 if no broker of it is left.
    """

    log_name = "write_permission_changed"
    event_name = "write_permission"

    broker_name: str
    topics: int
    is_removed: bool
    # The cause: an operator's request, an unregister request of the master or of the group's last broker, or the expiry
    # of a broker that did not come back.
    reason: Literal["operator", "unregistered", "expired"]

    def fields(self) -> dict[str, Any]:
        """Return the broker name, whether its write permission is removed now, and why."""
        return {"broker_name": self.broker_name, "removed": self.is_removed, "reason": self.reason}

    @property
    def audited(self) -> Audited:
        """An expiry if the removal has expired."""
        return "expiry" if self.reason == "expired" else "change"

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the write permission before and after."""
        about = {"what": "write_permission", "broker_name": self.broker_name, "topics": self.topics}
        yield {**about, "before": self.is_removed, "after": not self.is_removed, "reason": self.reason}

    def characters(self) -> int:
        """Return the memory of the broker's name."""
        return len(self.broker_name)


@dataclass(frozen=True, slots=True)
class MinBrokerIdChanged(Effect):
    """The smallest id of a group changed, and its members are to be notified (905)."""

    log_name = "min_broker_id_changed"

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    recipients: tuple[str, ...]
    ha_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    # The addresses that the broker at `offline_broker_addr` advertised.
    offline_advertised: AdvertisedAddresses = NOTHING_ADVERTISED

    def fields(self) -> dict[str, Any]:
        """Return the group, its smallest id, and the members to notify."""
        return {
            "broker_name": self.broker_name,
            "min_broker_id": self.min_broker_id,
            "recipients": self.recipients,
        }


def identity(key: BrokerAddrInfo, live: BrokerLiveInfo) -> dict[str, Any]:
    """Return the fields that identify a broker in log and recent events."""
    return {
        "cluster": key.cluster_name,
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "broker_addr": key.broker_addr,
    }


def address_fields(key: BrokerAddrInfo) -> Mapping[str, str]:
    """Return the fields that identify a broker's place in the audit trail."""
    return {"cluster": key.cluster_name, "broker_addr": key.broker_addr}


def _registration(live: BrokerLiveInfo) -> dict[str, Any]:
    """Return the fields in which one registration of a broker can differ from the last."""
    return {
        "broker_name": live.broker_name,
        "broker_id": live.broker_id,
        "ha_server_addr": live.ha_server_addr,
        "expiry_ms": round(live.expiry_seconds * 1000),
        "agent_id": live.agent_id,
        "connection": live.connection_id,
        **({"advertised": to_builtins(live.advertised)} if live.advertised != NOTHING_ADVERTISED else {}),
    }


def _route(topic: str, change: RowChange) -> dict[str, Any]:
    gone, new = difference(queues_of(change.before), queues_of(change.after))
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
    advertised = (*live.advertised.views, *live.advertised.addresses)
    texts: Iterable[str | None] = (*key, live.broker_name, live.ha_server_addr, live.agent_id, *advertised)
    return sum(len(text or "") for text in texts)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
