"""Keys and values of the route tables, their changes, and the effects of those.

Everything here is frozen: a table's entry is replaced, never edited.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.requests import AccessClass

Kind = Literal["full", "delta"]
Reason = Literal["silent", "disconnected", "unregistered", "superseded"]

# Brokers send as often, unless they are told otherwise.
HEARTBEAT_SECONDS: Final = 30.0
# A broker that is silent for so long, or for three quarters of its expiry if that is less, has missed a heartbeat.
_SUSPECT_SECONDS: Final = 1.5 * HEARTBEAT_SECONDS
_SUSPECT_SHARE: Final = 0.75


# The queues of one topic, ordered by broker name.
QueueRow = tuple[QueueData, ...]


class TopicRow(msgspec.Struct, gc=False, eq=False):
    """A row of the topic table: one object for all topics that got the same queues by the same step of one change.

    So a million topics fit, and none needs a number or an answer of its own. Nothing in it can refer to a row, so that
    the garbage collector need not know it. A topic with static mappings shares its row with no other.
    """

    queues: QueueRow
    # the last change of these topics' routes, 0 until that is made; every change of a route gives it a new row
    revision: int = 0
    # The encoded answers to questions for these topics, see route_cache and fast_path: bytes, and tuples and lists of
    # those. None: there is none yet, or it depends on more than the row.
    json: Any = None
    native: Any = None


def queues_of(row: TopicRow | None) -> QueueRow:
    """The queues of a topic, none if it has no row."""
    return () if row is None else row.queues


class BrokerAddrInfo(NamedTuple):
    """The key of a live broker. An address alone is not enough: two clusters may use one."""

    cluster_name: str
    broker_addr: str


class BrokerLiveInfo(msgspec.Struct, frozen=True, gc=False):
    """One live broker: its registration, and the time of its last heartbeat."""

    broker_name: str
    broker_id: int
    # liveness seconds, see manager
    last_update: float
    # how long it may be silent
    expiry_seconds: float
    # None (the broker named none) differs from every other
    data_version: DataVersion | None
    # the connection that carried its registration; another one that carried it only if that one has ended
    connection_id: int
    ha_server_addr: str | None
    # the number of this registration, unique within the server's run: what removals are fenced with
    generation: int
    # native agents: which process, and its own count of registrations
    agent_id: str | None = None
    registration_seq: int | None = None
    is_native: bool = False
    # what the broker says of itself in its heartbeats
    state: Mapping[str, Any] | None = None
    # who has registered it, where there are accounts
    account: str = ""

    def expires_at(self) -> float:
        """The last moment at which it counts as alive."""
        return self.last_update + self.expiry_seconds

    def is_suspect(self, now: float, heard: float | None = None) -> bool:
        """Whether it has missed a heartbeat; `heard` is the last one over a connection that is not its own."""
        last = self.last_update if heard is None else heard
        return now - last > min(_SUSPECT_SECONDS, _SUSPECT_SHARE * self.expiry_seconds)

    def heard(self, now: float, connection_id: int, state: Mapping[str, Any] | None) -> "BrokerLiveInfo":
        """The same broker with a heartbeat now, on this connection."""
        return BrokerLiveInfo(
            self.broker_name,
            self.broker_id,
            now,
            self.expiry_seconds,
            self.data_version,
            connection_id,
            self.ha_server_addr,
            self.generation,
            self.agent_id,
            self.registration_seq,
            self.is_native,
            self.state if state is None else state,
            self.account,
        )


@dataclass(frozen=True, slots=True)
class Registration:
    """One broker's registration, read and checked, not yet applied."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    body: RegisterBrokerBody
    connection_id: int
    expiry_seconds: float
    ha_server_addr: str | None = None
    zone_name: str | None = None
    # None: a broker older than 5.x, which does not say
    enable_acting_master: bool | None = None
    is_native: bool = False
    kind: Kind = "full"
    agent_id: str | None = None
    registration_seq: int | None = None
    # of the request as it came, for recognising the next equal one; None: do not
    digest: bytes | None = None
    # whose request it was, where there are accounts
    account: str = ""

    @property
    def key(self) -> BrokerAddrInfo:
        """Its entry in the live table."""
        return BrokerAddrInfo(self.cluster_name, self.broker_addr)


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """A slave's answer about its master; empty for masters and as long as there is none."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


# -- effects: what a write section hands to the sink once the lock is released ----------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration was applied, or recognised as the last one again (`unchanged`)."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    kind: Literal["full", "delta", "unchanged"]
    topics: int
    # not in the live table before
    is_new: bool
    # since it was last heard; 0 for a new one
    silent_seconds: float
    # its entry until now
    before: BrokerLiveInfo | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A broker said that it leaves."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo


@dataclass(frozen=True, slots=True)
class Evicted:
    """A broker left the tables. After `silent` its connection is closed, unless it carries others that live."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    reason: Reason
    silent_seconds: float
    # the number of the scan that found it silent
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """A late removal that was meant for an older registration, and did nothing."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    reason: Reason
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class TakeoverAttempted:
    """A request that would take the place of a live broker, or remove it, and whether it was refused."""

    # whose place it is
    key: BrokerAddrInfo
    live: BrokerLiveInfo
    # who wants it; the same, if it is only to be removed
    broker_name: str
    broker_addr: str
    connection_id: int
    age_seconds: float
    is_refused: bool


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A request for more than a cluster, an account or the tables may hold, and whether it was refused."""

    access_class: AccessClass
    # which quota or limit, in a word and in a sentence
    reason: str
    message: str
    is_refused: bool


@dataclass(frozen=True, slots=True)
class Scanned:
    """A search for silent brokers, numbered from 1, has decided: in liveness seconds, among so many brokers."""

    scan: int
    now: float
    brokers: int


@dataclass(frozen=True, slots=True)
class HeldUp:
    """This process was stopped: that time does not count as silence."""

    seconds: float


class Alike(NamedTuple):
    """Topics that had the same row of queues before a change and have the same one after it; None: none."""

    topics: Sequence[str]
    before: TopicRow | None
    after: TopicRow | None


@dataclass(slots=True)
class Rerouted:
    """What routes are made of before a change and after it. Frozen as soon as it is applied."""

    # topic (the table's own string) -> its row after the change, always a new one (None: it has none), of every topic
    # whose route may be another one now
    rows: dict[str, TopicRow | None] = field(default_factory=dict)
    # the same topics by their rows, at most CHUNK_TOPICS in each part
    parts: list[Sequence[Alike]] = field(default_factory=list)
    # broker name -> its group (None: there was none), of every group that changed
    groups_before: dict[str, BrokerData | None] = field(default_factory=dict)
    # what `rows` holds, but each only once or twice; and the topics that have none
    made: list[TopicRow] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """The routes of these topics (None: of any) are others than before; `revision` counts such changes."""

    topics: AbstractSet[str] | None
    revision: int
    # the same topics by their rows, a thousand at a time: routes can also change with what is in no row
    parts: Sequence[Sequence[Alike]] = field(default=(), compare=False)
    # the group whose registration, removal or permission changed the routes; None: a topic or an option changed them
    broker_name: str | None = None


@dataclass(frozen=True, slots=True)
class WriteWiped:
    """The write permission of a broker with so many topics was taken away, or given back, as an operator wished."""

    broker_name: str
    topics: int
    is_wiped: bool


@dataclass(frozen=True, slots=True)
class MinBrokerIdChanged:
    """The smallest id of a group changed: its members are to be notified (905)."""

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    recipients: tuple[str, ...]
    ha_broker_addr: str | None = None
    offline_broker_addr: str | None = None


Effect = (
    Registered
    | Unregistered
    | Evicted
    | Fenced
    | TakeoverAttempted
    | OverQuota
    | Scanned
    | HeldUp
    | RouteChanged
    | WriteWiped
    | MinBrokerIdChanged
)


@dataclass(slots=True)
class RouteOptions:
    """The settings that shape tables and routes; all can change while the server runs."""

    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    delete_topic_with_broker_registration: bool = False
