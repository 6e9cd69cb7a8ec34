"""Keys and values of the route tables, and their changes.

Everything here is frozen: a table's entry is replaced, never edited.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import DataVersion

Kind = Literal["full", "delta"]
Reason = Literal["silent", "disconnected", "unregistered", "superseded"]

# Brokers send as often, unless they are told otherwise.
HEARTBEAT_SECONDS: Final = 30.0
# A broker that is silent for so long, or for three quarters of its expiry if that is less, has missed a heartbeat.
_SUSPECT_SECONDS: Final = 1.5 * HEARTBEAT_SECONDS
_SUSPECT_SHARE: Final = 0.75


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


@dataclass(slots=True)
class RouteOptions:
    """The settings that shape tables and routes; all can change while the server runs."""

    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    delete_topic_with_broker_registration: bool = False
