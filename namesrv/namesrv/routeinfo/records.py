"""Keys and values of the route tables, and their changes.

Everything here is frozen: a table's entry is replaced, never edited.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_remoting.bodies.topic import DataVersion

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
    # brokers of other accounts that only squat in its places, and leave -> their account
    displaces: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def key(self) -> BrokerAddrInfo:
        """Its entry in the live table."""
        return BrokerAddrInfo(self.cluster_name, self.broker_addr)


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """A slave's answer about its master; empty for masters and as long as there is none."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


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


@dataclass(slots=True)
class RouteOptions:
    """The settings that shape tables and routes; all can change while the server runs."""

    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    delete_topic_with_broker_registration: bool = False


def difference(before: QueueRow, after: QueueRow) -> tuple[QueueRow, QueueRow]:
    """What is only in the one row and what is only in the other, but for queues in between.

    Ten thousand brokers may share a topic, and each that comes or goes changes its row: they are compared as tuples.
    """
    shorter = min(len(before), len(after))
    start = _common(shorter, lambda low, high: before[low:high] == after[low:high])
    before, after = before[start:], after[start:]
    shorter -= start
    end = _common(shorter, lambda low, high: before[-high : -low or None] == after[-high : -low or None])
    return before[: len(before) - end], after[: len(after) - end]


def _common(size: int, are_same: Callable[[int, int], bool]) -> int:
    """How many elements are the same, counted from one end; `are_same` compares those from low to high."""
    same = 0
    while size > same:
        middle = (same + size + 1) // 2
        if are_same(same, middle):
            same = middle
        else:
            size = middle - 1
    return same
